"""Floor 3: what is learnt. Knows no socket, no process, and not which secure sum is in use."""
