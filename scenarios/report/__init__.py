"""What a person looks at.

live      a panel on a terminal, plain lines elsewhere
summary   the end of a run in a few lines
page      the report of a run, or of several side by side, as one page
plotting  figures without a display
heat_map  the audit of all sums, as a table and a page
"""
