"""The cost and the disclosures of a secure sum, computed by executing it in memory, and the views of a whole run.

Reading order:

- `execution`: one sum in memory, and the labeled record of all messages.
- `symbolic`: the same on symbols: every message is a linear form of inputs and random draws.
- `span`: linear algebra modulo 2^64.
- `coalitions`: the view of a coalition, and the inputs that follow from it.
- `views`: the view that a coalition has of a whole run, the input of every attack.
- `sum_conformance`: checks that every secure sum must pass, for sums of this project and of others.
- `blind_views`: views of parties on a blind system (`blind_system`)
- `survey`: success of coalitions of every size against every secure sum
"""
