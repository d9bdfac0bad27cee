"""One party's connections. In the order to read it:

- `wire`: a message as frames, and what is refused of what comes in
- `keys`: who is who: key pairs, parties, the roster
- `auth`: who may connect, and under which name
- `connection`: one connection: how it fares, and what it carried
- `endpoint`: all sockets of one party, and the one loop that serves them
- `zmtp`, `counters`: bytes on the stream, by formula and by the kernel's count
- `deadline`: time as this process sees it
- `framefile`: messages in a file
"""
