"""A federation across hosts: the same sites and the same coordinator, each started by its own operator.

The coordinator listens; every site opens two connections to it, one for orders and one for protocols, so that a site
needs nobody to reach it but other sites, and those only where they speak directly. In the order to read it:

- `certificates`: files of keys, and the folder of those that are admitted
- `messages`: what is said before the first roster
- `hub`: the coordinator's endpoint, which sites connect to
- `spoke`: a site's endpoint, which connects to the coordinator
- `lobby`: the coordinator waits for its sites, and turns others away
- `gathering`: a `Federation` over the sites that came
- `reminders`: a site says what it waits for
- `visit`: a site joins, takes part, and leaves
"""
