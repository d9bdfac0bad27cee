"""Where rows come from, and who holds what of them.

sources   built-in data sets and files, as columns
openml    data sets of openml.org, through scikit-learn and its cache
splits    which site holds which rows and columns, test rows, folds
dataset   all of that for one scenario
describe  what a data set holds, for a person
"""
