"""Scenario files as typed tables. All mistakes are reported at once.

base         the common base of all tables
errors       mistakes in a scenario, as sentences
federation   the participants
split       the notation of splits
data        the rows, and their partition over sites
algorithm    the [algorithm] table, made from the settings of its algorithm
protocol     the secure sums
threats      faults, network conditions, collusion
consistency  combinations of valid tables that are refused
changes     changes of a scenario on the command line
spec         reads, validates and writes a whole scenario; its JSON schema
corrections  keys of the [data] table that bring files of different sites into one form
policy       site's own policy
own_file     TOML files of a site's own: its policy, and the corrections of its file
"""
