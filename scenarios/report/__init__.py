"""Reports for users.

live        a panel on a terminal, plain lines elsewhere
summary     the end of a run in a few lines
chart       plots as vector graphics
axes        axes of plots, and their scales
drawing     elements of pictures
run_plots   the plots of one run
template    self-contained pages; style page.css, script page.js
compiled_templates  templates as jinja2 compiles them, in files
page        the report of a run: head, cards and sections
section     the interface of a section
sections    the sections of the page, one module each
comparison  several runs on one page
heat_map    the audit of all sums, as a table and a page
cards       cards of a run, from its sections
message_flow  a map of the parties and the messages of a round, from a run's ledger
whole_run   result of attacks on a whole run, as a line of the summary and as a table
"""
