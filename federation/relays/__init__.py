"""Delays and faults on the links between parties, without root. Reading order:

- `client`: requests conditions and faults, in the process that runs the experiment
- `process`: the relay process, which forwards the bytes
"""
