"""The cost and disclosures of a secure sum, by executing it in memory, and what a run of many sums reveals to whom.

In the order to read it:

- `execution`: one sum in memory, and the labelled record of all that its parties saw.
- `symbolic`: the same on symbols, so that every message is a linear form of the inputs and of what was drawn.
- `span`: linear algebra modulo 2^64.
- `coalitions`: what a coalition sees, and whose inputs follow from it.
- `views`: what a coalition has of a whole run, which attacks start from.
- `conformance`: what every secure sum must keep, checked; for sums of this project and of others.
"""
