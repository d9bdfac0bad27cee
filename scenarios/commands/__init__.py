"""Commands of `fedsvm`, and what all commands share. Packages that stand above this one have a `commands` of their own.

exits         exit statuses, and errors that end a command with one
options       arguments and options that several commands have
outputs       files and folders that must not exist
presentation  a run as a command shows it
run           `fedsvm run`, `audit` and `check-sum`
results       `fedsvm report`, `predict-cost` and `predict`
files         `fedsvm scenarios` and `schema`
data          `fedsvm data` and `new`
"""
