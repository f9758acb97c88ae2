"""The event log of a run and everything that reads it."""
