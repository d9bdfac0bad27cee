"""Grids of runs: `grid` has axes, points, their table and plots; `scenarios.sweep_point` is one run of it."""
