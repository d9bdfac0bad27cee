"""The code that runs in a site's process. Reading order:

- `program`: the steps and the secure sums that a site offers
- `terms`: the terms of a run, sent to every site before anything is computed
- `script`: the steps that may be ordered, their order and their number
- `script_position`: the position of a site in its script
- `order_facts`: the part of an order that receipts show, and its digest
- `chain`: the digest of each order and of all before it; masks depend on it
- `answers`: noisy answers that a site keeps, so that a repeated question gets the same noise
- `rules`: the rules of the site's operator
- `site_policy`: terms and rules of a site in one run
- `site_journal`: records what a restarted site needs to continue
- `receipt`: records the values that left the site, for the people responsible for its data
- `assignment`: everything that a launcher sends a site process
- `resources`: CPU seconds and memory of the process
- `partition`: the data of a site, and the file that holds it
- `faults`: kills and stalls that a site inflicts on itself, for experiments
- `logs`: log records of a site's code, on their way to the coordinator
- `order_admission`: whether an order may be carried out now: policy, signature, chain and script
- `replies`: how each round ended here, log records, and the report at the end
- `site`: receives an order, runs the step and the protocol, and answers
- `site_start`: the start of a site process
- `private_file`: files that belong to a site alone
- `signed`: signed orders, and which signatures a site verifies
- `warm_up`: a short run of a site in the process from which sites are forked
"""
