"""The arithmetic of the protocols, without a channel.

Reading order:

- `fixed_point`: float64 to and from residues modulo 2^64 or 2^128, and sums of these.
- `flags`: flags of sites as bits of words.
- `shamir`: secret sharing over a prime field.
- `commutative`: commutative encryption of points on a curve.
- `residue_numbers`: large integers as residues modulo several primes, in float64, with exact matrix products by BLAS.
"""
