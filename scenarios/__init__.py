"""Floor 4: what a user runs: scenarios, data sets, partitions, results and the command line."""
