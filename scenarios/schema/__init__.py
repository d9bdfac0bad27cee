"""Scenario files, as typed tables whose mistakes are all reported at once.

base         what all tables have in common
errors       what is wrong with a scenario, in sentences
federation   who takes part
split, data  which rows there are, and who holds what of them
algorithm    the [algorithm] table, made from the settings of the algorithm that it names
protocol     how sums are kept secret
threats      faults, network conditions, collusion
consistency  what does not go together, though each table is valid by itself
spec         reading, validating and writing a whole scenario; its JSON schema
"""
