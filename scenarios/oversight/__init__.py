"""Pages for whoever answers for a site's data, such as its data protection officer.

explanation  what would leave a site, from the script of the agreed terms
commands     `fedsvm explain`
"""
