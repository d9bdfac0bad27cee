"""Runs across hosts: the coordinator has the scenario, and each site brings its own file. Reading order:

- `host_scenario`: the requirements of a scenario on sites, and the scenarios that can run across hosts
- `site_data`: reads a site's file on these terms
- `terms_preview`: the terms of a scenario, for commands that look at them before a run
- `preflight`: compares a policy with a scenario before a run
- `public_rows`: the coordinator's own rows, if training is private
- `sources`: rows and columns at other hosts, for training
- `coordination`: a run over registered sites
- `coordinator_command`: `fedsvm coordinate`
- `site_command`: `fedsvm site`
- `preparation_commands`: `fedsvm keys` and `fedsvm policy`
- `host_description`: description of the columns of sites on other hosts
- `prediction`: request to sites on other hosts for predictions of new records
- `new_records`: reads a site's new records, and its part of the model
- `service`: site as a service
"""
