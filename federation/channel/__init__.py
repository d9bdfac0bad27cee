"""The view that a protocol function has of the network. Reading order:

- `interface`: `Channel`, its guarantees and its errors; `Observer`, which watches one
- `mailbox`: sorts the messages of an endpoint into arrays of a round and control messages
- `socket`: the channel over an endpoint
- `memory`: the channel between threads of one process, for tests, cost formulas and audits
- `channel_conformance`: `check_channel`, which both must pass
- `agreement`: secrets that two sites share, and their keystreams
- `generator`: random numbers of a step that can be drawn again
- `envelope`: messages between sites that the coordinator forwards and cannot read
- `transcript`: an observer that records messages
"""
