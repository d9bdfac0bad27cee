"""Commands of `fedsvm`, and their shared parts. Packages above this one have command modules of their own.

options       arguments and options of several commands
outputs       checks that an output does not exist yet
presentation  the output of a run
run           `fedsvm run`, `audit` and `check-sum`
results       `fedsvm report`, `predict-cost` and `predict`
files         `fedsvm scenarios` and `schema`
data          `fedsvm data` and `new`
describe      `fedsvm describe`
exit_statuses  exit statuses of the command line, and errors that end a command with a sentence and a status
"""
