"""Floor 2: protocols that reveal only the intended value. Knows no SVM and no data set.

Reading order:

- `arithmetic`: numbers as residues of one modulus and of several primes, secret sharing, and encryption that commutes.
  Apart from the expansion of seeds, it knows no channel.
- `sums`: secure sums. `sums.secure_sum` is their interface, `sums.ring` the simplest example, `sums.registry` maps the
  names in scenarios to protocols.
- `ring_broadcast`, `common_seed`, `secret_order`: values that all sites know and the coordinator does not.
- `scalar_product`: the scalar product of two sites' vectors.
- `side_by_side`: several executions of one protocol, which share their messages.
- `committee`: three sites that help to solve linear systems, drawn or agreed.
- `blind_parameters`: the public parameters of a linear system over all sites, and a mask, as residues.
- `blind_sums`: sums that are opened with such a system.
- `blind_masks`: draws a mask, and applies it to a matrix in shares.
- `blind_system`: solves the systems behind two masks of different sites.
- `sets`: intersection, cardinality and union of the sites' sets, and the program that runs them.
- `analysis`: the cost and the disclosures of a sum, computed by executing it in memory.
"""
