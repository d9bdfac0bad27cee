"""Secure set operations by commutative encryption: intersection, union and comparison of records.

Reading order:

- `intersection`: the items that all sites hold, or their number.
- `union`: every item that a site holds, without its site.
- `records`: the values that any two records of different sites have in common.
- `program`: both halves of these protocols and of the scalar product at site processes, for `fedsvm sets`.
"""
