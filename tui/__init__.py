"""The dashboard: a view of a run's state."""
