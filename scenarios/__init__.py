"""Floor 4: everything that a user runs. No module here knows an algorithm by name.

schema    scenario files: tables, consistency, reading and validation
data      sources of rows, and their partition over sites
run       a run from start to end: pipelines, faults, audit, metrics, result
report    live view, summary, report page
sweep     grids of runs, with table and plots
hosts     runs over sites on other hosts
oversight   pages for the people who are responsible for a site's data
hub         the task service, an application
reproduction  reproduces the claims of papers, with verdicts, an application; `papers` has their files
predict     predictions of a run's model for new rows
saved_model   the model in the folder of a run
table_rows    rows of a table in the columns of a model
column_prediction  predictions over sites that hold columns
forecast  the predicted cost of a scenario with more sites
description  `fedsvm describe`: the columns of all sites, without training
draft     a first scenario for a table
sets      set operations over columns of files, one site process for each file
runs      lists the runs of a folder
track     exports runs to an experiment tracker
api       `fedsvm.run`
commands  commands of the packages above, except those that have their own
cli       the whole command line
console   the terminal
streams   standard output and error, which may be closed
figures   numbers as text: percent, bytes
interrupts  Ctrl-C, SIGTERM and SIGHUP
drift         comparison of new rows with the training rows of a model
export        models of runs as scikit-learn pipelines
onnx_graph    exported pipelines as ONNX graphs
two_runs      audit of two runs
catalogue built-in scenarios
"""
