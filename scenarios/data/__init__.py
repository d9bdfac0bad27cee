"""The sources of rows, and their partition over sites.

sources   built-in data sets and files, as columns
files     reading them
text_form how text is written: separators, decimals, encodings
joining   a table of several files: each site's, and the test rows
located   scenarios whose sites are named by a column
categories  what columns of text become, and what was not meant so
openml    data sets of openml.org, through scikit-learn and its cache
splits    which site holds which rows and columns, test rows, folds
dataset   all of that for one scenario
describe  what a data set holds, for a person
"""
