"""Floor 2: protocols that reveal only the intended value. Knows no SVM and no data set.

Reading order:

- `arithmetic`: numbers as residues, secret sharing, and encryption that commutes. Knows no channel.
- `sums`: secure sums. `sums.contract` is their interface, `sums.ring` the simplest example, `sums.registry` maps the
  names in scenarios to protocols.
- `passing_on`, `common_seed`, `secret_order`: values that all sites know and the coordinator does not.
- `scalar_product`: the scalar product of two sites' vectors.
- `sets`: intersection, cardinality and union of the sites' sets, and the program that runs them.
- `analysis`: the cost and the disclosures of a sum, computed by executing it in memory.
"""
