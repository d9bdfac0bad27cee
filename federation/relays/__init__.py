"""Delays and faults on the links between parties, without root. Reading order:

- `client`: requests conditions and faults, in the process that runs the experiment
- `event_loop`: waits for sockets and for moments, in the relay process
- `relayed_connection`: relayed connections, with the conditions and faults of their links
- `process`: the relay process, which serves the requests and accepts connections
"""
