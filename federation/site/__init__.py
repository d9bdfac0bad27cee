"""The code that runs in a site's process. In the order to read it:

- `program`: what a site can be asked to do: steps, and the secure sums of its installation
- `terms`: what a run asks of every site, said before anything is computed
- `script`: which steps may be ordered, in which order and how often
- `chain`: the digest of each order and of all before it, to which masks are bound
- `rules`: what the site's operator allows, whatever a run asks for
- `policy`: what a site takes part in, by both
- `journal`: what a site writes down, so that its process can be started again and stand where it stood
- `receipt`: what a site records of a run for those who answer for its data
- `site`: receives an order, runs the step, runs the protocol, answers
- `partition`: what a site holds, and the file that it is handed in
- `faults`: kills and stalls that a site does to itself, for experiments
"""
