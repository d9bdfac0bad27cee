"""Pages for whoever answers for a site's data, such as its data protection officer.

explanation  what would leave a site, from the script of the agreed terms
receipts     what left a site in a run, and whether two sites had the same orders
commands     `fedsvm explain` and `fedsvm receipt`
"""
