"""The task service: people create tasks and invite others by mail; each participant computes when it suits them.

A task is a scenario over offline sites (`fedsvm.federation.offline`). It uses the coordinator and the journal of any
run; a database keeps its messages until a participant fetches them. Reading order:

- `task_form`: makes a task's scenario from its form
- `public_rows`: the public rows of a task with private training
- `offered`: the scenario and the terms of a stored task
- `prediction_task`: predicts new records by the model of another task
- `database`: the tables, which `migrations` creates
- `migrations`: the migrations of these tables
- `stored_messages`: stores the messages between participants and coordinators
- `description_task`: describes columns in place of training
- `task_runner`: runs the coordinators of tasks
- `mails`: writes each mail once, and sends it
- `notices`: the texts of mails about tasks
- `accounts`: users, who sign in by a mailed link
- `roles`: who can create tasks, and who sees them
- `new_task`: a task as its creator describes it
- `tasks`: the events of a task: invite, join, decline, withdraw, begin, end
- `participant_api`: answers the sealed requests of participants' programs
- `pages`: the web pages
- `form_reader`: reads the forms of pages
- `presentation`: the texts in which pages describe a task
- `demo`: an example task
- `metrics`: the state of the hub for monitoring programs
- `health_check`: checks a running hub
- `limits`: the rate limit of a client
- `connections`: the number and the age of open connections
- `service`: the web application
- `participation`: a participant's visit
- `browser`: a participant's visits in a web browser
- `browser_files`: the files that the hub serves for them
- `server`: serves the application until it is stopped
- `commands`: `fedsvm hub` and `fedsvm join`, the only module used from outside
"""
