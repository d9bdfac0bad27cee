"""Starting site processes and watching them. In the order to read it:

- `contract`: `Launcher`, what a federation needs of whatever starts its sites
- `launcher`: the one for this machine, in the coordinator's process
- `cluster`: the one for a cluster of Ray, with one for its machine on each node
- `forkserver`: the process that sites are forked from
- `limits`: how many processes and threads the system allows
- `child`, `pipe`: a process at the other end of a stream, and messages over it
"""
