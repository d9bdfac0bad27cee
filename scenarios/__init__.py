"""Floor 4: what a user runs. No module here knows an algorithm by its name.

schema    scenario files: the tables, what does not go together, reading and validating
data      where rows come from, and how they are cut into what each site holds
run       a run from beginning to end: pipelines, faults, the audit, metrics, the result
report    the live view, the summary, the page
sweep     grids of runs, their table and plots
hosts     runs over sites on other hosts
oversight pages for whoever answers for a site's data
hub       an application: the task service
reproduction  an application: papers and claims measured again, with verdicts; papers has their files
predict   predictions of a run's model for new rows
forecast  what a scenario would cost with more sites
draft     a first scenario for a table
sets      set operations over columns of files, each at a site process
runs      finding runs: a table of those in a folder
track     runs for an experiment tracker
api       `fedsvm.run`
commands  commands of the packages above but for hosts, oversight, sweep and applications, which have their own
cli       the command line: all of them
console   the terminal
figures   figures as text: percent, bytes
interrupts  Ctrl-C, SIGTERM and SIGHUP
catalogue scenarios that come along
"""
