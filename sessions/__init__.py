"""Sessions: a run is an event log, and everything else is a view of it.

`events` names what is logged, `store` keeps it, `state` reduces it to a `RunState`; `runner` and
`launch` make a log, `tail` and `replay` watch one, `export`, `portable` and `frames` turn one into files
and tables, `listing` finds them.
"""
