"""Starts and watches site processes. Reading order:

- `launcher_interface`: `Launcher`, the interface by which a federation starts its sites
- `launcher`: starts sites on this machine
- `cluster`: starts sites on a Ray cluster, by a `LocalLauncher` on each node
- `blas`: the environment in which linear algebra is fast
- `server_start`: starts the process from which sites are forked
- `forkserver`: that process
- `limits`: the number of processes and threads that the system allows
- `child`, `pipe`: a process at the other end of a stream, and its messages
- `launcher_cache`: keeps a launcher for a moment after a federation, so that the next need not load everything again
- `memory`: memory of this machine
"""
