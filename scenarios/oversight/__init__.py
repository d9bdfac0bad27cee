"""Pages for the people who are responsible for a site's data, such as its data protection officer.

explanation  the values that would leave a site, from the script of the agreed terms
receipts     the values that left a site in a run
receipt_comparison  the comparison of two sites' receipts
commands     `fedsvm explain` and `fedsvm receipt`
signatures   signatures in a receipt
"""
