"""The kinds of faults, one module each: schema, sites and relays find every module here, and use its `KIND`."""
