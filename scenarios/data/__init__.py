"""The sources of rows, and their partition over sites.

sources   built-in data sets and files, as columns
files     reads files
text_form detects separators, decimal marks and encodings
joining   joins several files to one table: one for each site, and the test rows
located   scenarios whose sites are named by a column
categories  values of text columns, and values that look wrong
openml    data sets of openml.org, through scikit-learn and its cache
splits    rows and columns of each site, test rows, folds
dataset   the data of one scenario
describe  describes a data set to a person
"""
