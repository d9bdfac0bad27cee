"""A run from beginning to end.

outcome     the state of a run that goes on, and its models with their evaluation
starter     what sites are started with
injector    faults and network conditions, as they strike
training    the one driver: fit, time, log, evaluate and keep one model after the other, from a `Source`
horizontal  rows as a source, and those of a simulation
vertical    columns as a source, and those of a simulation
evaluation  a model beside what pooled rows give, which only a simulation knows
metrics     how good decision values are
curves      the curves that decision values are judged by
selection   how columns were chosen, and three readings of how accurate the chosen ones are
cautions    reasons to doubt trained models
shortfalls  comparisons that a result does not beat
secrecy     who can reveal an input to a sum, and what noise does not cover
audit       what colluding parties reconstruct
result      `RunResult`, of which result.json is the serialised form; the ledger
log         log.jsonl, while the run goes on
runner      puts it together
"""
