"""Runs across hosts: the scenario is the coordinator's, and each site brings a file of its own. In the order to read:

- `asking`: what a scenario asks of sites, and which scenarios can be run across hosts
- `holding`: what a site reads of its own file on these terms
- `asked`: the terms of a scenario, for commands that look at them before a run
- `checking`: a policy and a scenario compared before a run
- `public_rows`: the coordinator's own rows, if training is private
- `sources`: rows and columns at other hosts, as training sees them
- `coordination`: a run over sites that join
- `commands`: the commands of a coordinator and of a site
"""
