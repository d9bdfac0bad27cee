"""The results of papers and the claims of this project, measured again, each with a verdict.

entries     the files in scenarios/papers: printed values, and the runs that measure them
claims      evaluates claims about measured values
measures    values of a result
plan        the runs of all entries, each once, in a folder named by its content
provenance  the data files and versions of the code of a folder's runs
pictures    figures of measured values
page        the page, JSON and tables of values
commands    `fedsvm reproduce`, the only module used from outside
entry_selection  lists, runs and judges selected entries
judgment    compares measured and printed values: same, better, differs, or a reason for none
"""
