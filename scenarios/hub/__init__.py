"""The task service: people make tasks, invite others by mail, and each computes when it suits them.

A task is a scenario over visitors (`fedsvm.federation.visits`): the same coordinator and journal as of any run, whose
messages lie in a database until a participant comes for them. In the order to read it:

- `asking`: the scenario of a task, from what its form says
- `database`: the tables, made by the migrations beside
- `letters`: what participants and the coordinator say to each other, as it is stored
- `conducting`: the coordinator of a task, run as far as it comes
- `mails`: what is written to whom, once each, and how it is sent
- `tasks`: what may happen to a task: invited, joined, declined, withdrawn, begun, over
- `desk`: what participants' programs say to the hub, sealed
- `pages`: what people see
- `presentation`: the words in which pages describe a task
- `demo`: an example task
- `limits`: how much one client can ask for
- `connections`: how many connections are open, and for how long
- `service`: all of it as one web application
- `joining`: a participant's visit
- `serving`: the application at an address, until it is told to end
- `commands`: `fedsvm hub` and `fedsvm join`, which alone are used from outside
"""
