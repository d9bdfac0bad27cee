"""The sources of rows, and their partition over sites.

tables    columns as read, and data sets with labels
built_in  built-in data sets
sources   finds and reads data sets by name
files     reads files
text_form  detects separators, decimal marks and encodings
categories  values of text columns, and values that look wrong
openml    data sets of openml.org, through scikit-learn and its cache
splits    rows and columns of each site, test rows, folds
dataset   the data of one scenario
label_classes  names of classes, which of two is +1, and labels by number
row_roles   rows that are public, tested on, held out, or set apart to calibrate
corrections  files of different sites in one form
derived_labels  tables that are a file's with labels that papers tell apart and the file does not
downloads   places where the public data sets that scenarios name can be downloaded
file_join   tables of several files as one
harmonization  tables as a first scenario takes them
notation    numbers that are read as text for a cell or for how they are written, and what stands for a missing one
proposals   corrections that files seem to need
rough_ranges  ranges of numeric columns as a first scenario proposes them
site_column  scenarios whose sites are named by a column of the data
census      artificial people, whose public rows may be of another population
sphere      rows on a sphere that a plane through its center tells apart, drawn to measure
table_description  data set in figures
"""
