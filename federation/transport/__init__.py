"""One party's connections. In the order to read it:

- `wire`: a message as frames, and what is refused of what comes in
- `keys`: who is who: key pairs, parties, the roster
- `auth`: who may connect, and under which name
- `connection`: one connection: how it fares, and what it carried
- `poller`: the one loop that serves the sockets of a party
- `descriptors`: how many files a process may open
- `endpoint`: all sockets of one party, and the messages on them
- `zmtp`, `counters`: bytes on the stream, by formula and by the kernel's count
- `deadline`: time as this process sees it
- `framefile`: messages in a file
"""
