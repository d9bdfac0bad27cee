"""A federation whose parties are never online together: messages are stored, and each party comes when it suits it.

The very `Federation` and the very `Site` run over an endpoint that stores. Whoever comes is run from its start: it
takes in what it was sent, one message after the other, draws at random what it drew before, and so comes to where it
stood; what it says again is known. Where it waits for what is not there yet, it ends (`NothingDue`). In the order to
read it:

- `endpoint`: an endpoint whose messages were stored
- `sealing`: what a party derives from its key: words to the hub, files that only it can read, and what it draws
- `diary`: what a site keeps between its visits
- `coordinator`: a `Federation` as far as the stored messages carry it
- `visit`: a `Site` as far as the stored messages carry it
"""
