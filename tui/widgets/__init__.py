"""Panes of the Run screen: each is a view of a RunState and holds no state of the run."""
