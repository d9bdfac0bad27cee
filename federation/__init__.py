"""Processes, sockets, messages, identity, time, faults, and counting all of it; no protocol, no SVM.

In the order to read it; each imports from earlier ones only:

- `errors`: what can go wrong, in two families: try again, or do not
- `arrays`: the types of arrays that all floors name
- `columns`: how the columns of some sites differ from what most have
- `plugins`: what other packages offer by entry points
- `transport`: one party's encrypted connections, and the bytes on them
- `channel`: what a protocol function sees of the network
- `control`: every message that is not a protocol's, on one page
- `site`: what runs in a site's process
- `processes`: starting site processes and watching them
- `ledger`: messages and bytes of every link in every round, told by both ends
- `membership`: which sites take part, and why others do not
- `disclosures`: what was revealed, to whom
- `shown`: what one round showed, for who audits a run
- `exchange`: control messages out, answers in
- `round`: one attempt at one round
- `admission`: how sites come to take part, at launch and later
- `journal`: the file by which a run can be resumed
- `record`: the log of a run, its metrics and the seconds of its phases
- `rounds`: rounds repeated until they are complete
- `replay`: rounds of a run that has a journal
- `links`: processes, sockets and identities of the sites, as the coordinator has them
- `federation`: the verbs of an algorithm, and its phases
- `running`: the one builder of a federation
- `report`: what a federation says of itself afterwards
- `assemble`: simulations, whose sites are started here
- `hosts`: sites on other hosts
- `visits`: sites that visit a hub
- `relays`: delays and faults on the links, for experiments

`local_federation` of `assemble` is the way in for a program; `Federation.sum` of `federation` the one to follow from
there, hop by hop in docs/architecture.md.
"""
