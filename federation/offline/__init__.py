"""A federation whose parties need not be online together: messages are stored, and each party processes them later.

The same `Federation` and the same `Site` run over an endpoint that stores messages. At each visit a party runs from its
start. It receives the stored messages in order and repeats its random draws, so it reaches its earlier state. Messages
that it sent before are recognized and not sent again. It ends (`NothingDue`) where the next message is missing.

Reading order:


- `endpoint`: an endpoint over stored messages
- `sealing`: the keys derived from a party's key, for requests, its private files and its random draws
- `site_store`: stores a site's state between visits
- `coordinator`: runs a `Federation` as far as the stored messages allow
- `offline_site`: runs a `Site` as far as the stored messages allow
"""
