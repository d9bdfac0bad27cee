"""A run from start to end.

outcome     the state of a run, and its models with their evaluation
starter     starts the sites
injector    injects faults and network conditions
training    fits, times, logs, evaluates and keeps one model after the other, from a `Source`
horizontal  rows as a source, and those of a simulation
vertical    columns as a source, and those of a simulation
evaluation  compares a model with pooled training, in simulations
metrics     measures of decision values, as values
measuring   computes them, with means and intervals over folds
curves      curves of decision values
selection   the selected columns, and three estimates of their accuracy
shortfalls  comparisons in which a result is worse
secrecy     the coalitions that learn an input, and the limits of noise
audit       the rows that colluding parties recover
result      `RunResult`, written as result.json; the ledger
log         writes log.jsonl during the run
runner      combines all of these
gains       the gain of one model over others on the same test rows
folder      default folders of runs
intervals   confidence intervals (95 %) of measures on test rows
model_warnings  warnings about tested models
offered_terms  terms that a scenario offers every site, as plain values, so that each can compare them with its policy
own_models  each site's own model against the federated one, on the same test rows
resume      runs that are written down as they go, so that one whose coordinator was killed can be resumed
"""
