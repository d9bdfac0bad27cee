"""The arithmetic of the protocols, without a channel.

In the order to read it:

- `fixed_point`: float64 to and from residues modulo 2^64 or 2^128, and how these are added.
- `flags`: flags of sites as bits of words.
- `shamir`: secret sharing over a prime field.
- `commutative`: encryption of points of a curve that commutes.
- `residue_numbers`: large integers as residues modulo several primes, in float64: matrix products are calls of BLAS,
  and exact
"""
