"""Runs across hosts: the scenario is the coordinator's, and each site brings a file of its own. In the order to read:

- `asking`: what a scenario asks of sites, and which scenarios can be run across hosts
- `holding`: what a site reads of its own file on these terms
- `columns`: sites that hold columns of the same records
- `public_rows`: what the coordinator has itself, where training is private
- `coordination`: a run over sites that join
- `commands`: the commands of a coordinator and of a site
"""
