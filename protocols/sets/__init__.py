"""Secure set operations by commutative encryption: intersection, union and comparison of records.

In the order to read it:

- `intersection`: which items all sites hold, or how many.
- `union`: every item that a site holds, and not which site.
- `records`: what any two of all sites' records have in common.
- `program`: both halves of running these, and the scalar product, at site processes; `fedsvm sets` drives it.
"""
