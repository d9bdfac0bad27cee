"""The connections of one party. Reading order:

- `wire`: a message as frames, and strict decoding
- `z85`: the text form of keys
- `addresses`: addresses of parties, and the version of IP that they need
- `keys`: identities: key pairs, parties, the roster
- `auth`: admits connections by key
- `connection`: one connection: its state, and its traffic
- `poller`: the loop that serves the sockets of a party
- `descriptors`: the limit of open files of a process
- `message_transport`: the contract of a party's transport
- `endpoint`: all sockets of one party, and their messages
- `zmtp`, `counters`: bytes on the stream, by formula and by the kernel's count
- `deadline`: the clock of this process
- `framefile`: messages in a file
- `signing`: signatures of parties (Ed25519, RFC 8032)
"""
