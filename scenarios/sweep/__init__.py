"""Grids of runs: `grid` has axes, points, table and page, `charts` the plots; `scenarios.sweep_point` is one run."""
