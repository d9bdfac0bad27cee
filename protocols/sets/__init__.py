"""Secure set operations by commutative encryption: intersection, union and comparison of records.

Reading order:

- `intersection`: the items that all sites hold, or their number.
- `union`: every item that a site holds, without its site.
- `records`: the number of items that any two records of different sites have in common.
- `program`: the site program and the coordinator's functions for `fedsvm sets`, including the scalar product.
"""
