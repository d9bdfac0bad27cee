"""Floor 1: processes, sockets, messages, identity, time, faults, and the ledger of all traffic. Knows no protocol.

Reading order; each module imports only from those above it:

- `errors`: the errors, in two families: retry, or end the run
- `arrays`: the array types that all floors use
- `columns`: differences between the columns of sites
- `plugins`: entry points of other packages
- `transport`: the encrypted connections of one party, and the bytes on them
- `channel`: the view that a protocol function has of the network
- `control`: the coordinator's messages that do not belong to a protocol, and a table of all such messages
- `site_messages`: those of a site
- `control_fields`: reads and checks their fields
- `site`: the code that runs in a site's process
- `processes`: starts and watches site processes
- `traffic_ledger`: messages and bytes of every link in every round, reported by both ends
- `membership`: the sites that take part, and why others do not
- `disclosures`: the values that a run reveals, and to whom
- `disclosed_round`: the values that one round reveals, for audits
- `control_exchange`: sends control messages, receives answers
- `round`: one attempt at one round
- `admission`: admits sites at launch and later
- `run_journal`: the file from which a run can be resumed
- `record`: the log of a run, its metrics and the seconds of its phases
- `rounds`: repeats rounds until they are complete
- `replay`: the rounds of a run with a journal
- `links`: the coordinator's processes, sockets and identities of sites
- `federation`: the verbs by which an algorithm orders work, and its phases
- `lifecycle`: builds every federation
- `report`: the report of a federation after its run
- `startup`: simulations, whose sites run on this machine
- `hosts`: sites on other hosts
- `offline`: sites that are never online together
- `faults`: kinds of faults, for experiments
- `relays`: delays and faults on links, for experiments
- `text`: text of other parties, made safe to print

Programs start at `local_federation` in `startup`. docs/architecture.md follows one `Federation.sum` step by step.
"""
