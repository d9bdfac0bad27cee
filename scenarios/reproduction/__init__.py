"""The results of papers and the claims of this project, measured again, each with a verdict.

entries     the files in scenarios/papers: what is printed where, and which runs answer to it
claims      the language in which a claim about measured values is put to the test
measures    what a result says
plan        the runs that entries need, each once, in a folder by its content
judge       measured against printed: same, better, differs, or why it cannot be told
provenance  the data files and states of the code that the runs of a folder were made with
pictures    figures drawn from what was measured
page        the page, JSON and tables of values that come of it
chosen      entries that were asked for, listed or run and judged
commands    `fedsvm reproduce`, which alone is used from outside
"""
