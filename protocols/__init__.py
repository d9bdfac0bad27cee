"""Floor 2: who sends what to whom so that only the intended value is revealed. Knows no SVM and no data set.

In the order to read it:

- `arithmetic`: numbers as residues, secret sharing, and encryption that commutes. Knows no channel.
- `sums`: secure sums. `sums.contract` is what all have in common, `sums.ring` the model of one, `sums.registry` the
  names by which scenarios call them.
- `passing_on`, `common_seed`, `secret_order`: what the sites know and the coordinator does not.
- `scalar_product`: of two sites' vectors.
- `sets`: intersection, cardinality and union of the sites' sets, and the program that runs them.
- `analysis`: what a sum costs and whom it tells what, found out by executing it in memory.
"""
