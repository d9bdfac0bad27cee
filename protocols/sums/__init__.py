"""Secure sums: one file a protocol, with its roles, its cost formula and what a coalition learns.

In the order to read it:

- `contract`: what every sum has in common, and how it is joined with the encoding.
- `plain`: no secrecy, to compare with. `ring`: the model of a protocol.
- `k_secure`, `changing_neighbours`: rings that take more colluders.
- `masked`: survives dropouts.
- `registry`: the names by which scenarios and orders call them; other packages' sums too.
"""
