"""The reports for users.

live        a panel on a terminal, plain lines elsewhere
summary     the end of a run in a few lines
chart       plots as vector graphics
run_plots   what is drawn of one run
exchange    who spoke with whom: a map of the parties, and the messages of a round
template    pages of one file each; their style is page.css, their script page.js
page        the report of a run
comparison  several runs on one page
heat_map    the audit of all sums, as a table and a page
"""
