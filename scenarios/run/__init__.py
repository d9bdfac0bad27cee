"""A run from beginning to end.

outcome     what is known while it goes on
starter     what sites are started with
injector    faults and network conditions, as they strike
horizontal  any algorithm over sites that hold rows
vertical    any algorithm over sites that hold columns
metrics     how good decision values are
selection   how columns were chosen, and three readings of how accurate the chosen ones are
shortfalls  what a result is no better than
audit       what colluding parties reconstruct
result      `RunResult`, of which result.json is the serialised form; the ledger
log         log.jsonl, while the run goes on
runner      puts it together
"""
