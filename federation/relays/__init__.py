"""Delays and faults on the links between parties, without root. In the order to read it:

- `client`: what is asked for, in the process of whoever runs an experiment
- `process`: the relay process, which carries the bytes
"""
