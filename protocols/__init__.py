"""Floor 2: protocols that reveal only the intended value. Knows no SVM and no data set.

Reading order:

- `arithmetic`: numbers as residues of one modulus and of several primes, secret sharing, and encryption that commutes.
  Knows no channel but for what expands seeds.
- `sums`: secure sums. `sums.secure_sum` is their interface, `sums.ring` the simplest example, `sums.registry` maps the
  names in scenarios to protocols.
- `ring_broadcast`, `common_seed`, `secret_order`: values that all sites know and the coordinator does not.
- `scalar_product`: the scalar product of two sites' vectors.
- `blind_system`: a linear system over all sites, solved behind two masks of different sites.
- `sets`: intersection, cardinality and union of the sites' sets, and the program that runs them.
- `analysis`: the cost and the disclosures of a sum, computed by executing it in memory.
- `side_by_side`: executions of one protocol whose messages travel together
- `blind_parameters`: public parameters of a blind system (`blind_system`), and a member's mask, as residues
- `blind_sums`: sums that are opened together with a blind system (`blind_system`)
"""
