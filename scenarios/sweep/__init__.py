"""Grids of runs: `grid` has axes, points, table and page, `charts` the plots, `worker` the processes that run,
`commands` the commands."""
