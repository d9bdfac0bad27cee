"""The view of the network that a protocol function has. In the order to read it:

- `contract`: `Channel`, what it promises and how it fails; `Observer`, which watches one
- `mailbox`: sorts what an endpoint receives into arrays of a round and control messages
- `socket`: the channel over an endpoint
- `memory`: the channel between threads of one process, for tests, cost formulas and audits
- `conformance`: `check_channel`, which both pass
- `agreement`: secrets that two sites share, and their keystreams
- `generator`: random numbers of a step that may have to be drawn again as they were
- `envelope`: messages of sites that speak through the coordinator, which it cannot read
- `transcript`: an observer that writes down what passes
"""
