"""Grids of runs.

grid      axes, points, table and page
charts    the plots
worker    the processes that run the points
commands  `fedsvm sweep`
"""
