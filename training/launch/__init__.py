"""How assets start trainers: one message contract, a local process or a Ray job underneath."""
