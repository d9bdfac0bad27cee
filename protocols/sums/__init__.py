"""Secure sums: one file for each protocol, with its roles, its cost formula and what a coalition learns.

The roles of every protocol take and return what `SecureSum` says of them. `helpers`, `segments`, `rings` and
`threshold` are options.

Reading order:

- `secure_sum`: the interface of every sum, and its encoding.
- `plain`: no secrecy, for comparison.
- `ring`: the simplest secure sum.
- `k_secure`, `changing_neighbours`: rings that withstand more colluders.
- `masked`, `additive_shares`: survive dropouts.
- `neighbourhoods`, `consent`: the graph of `masked`, and what a site of it refuses.
- `registry`: the names in scenarios and orders; sums of other packages too.
"""
