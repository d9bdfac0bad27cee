"""A federation across hosts: the same sites and the same coordinator, each started by its own operator.

The coordinator listens. Every site opens two connections to it, one for orders and one for protocols. So a site need
not accept connections, unless sites send messages to each other directly. Reading order:

- `certificates`: key files, and the folder of admitted keys
- `held_data`: the data that a site contributes
- `messages`: the messages before the first roster
- `listening_endpoint`: the coordinator's endpoint, to which sites connect
- `outbound_endpoint`: a site's endpoint, which connects to the coordinator
- `invitations`: which calls of sites are accepted, the offer, and the answer
- `registered_sites`: the sites of a run that has begun, some of which may come back
- `registration`: registers sites until the run begins
- `remote_federation`: a `Federation` over the registered sites
- `reminders`: messages about what a site waits for
- `site_session`: one site's part in one run, from joining to leaving
"""
