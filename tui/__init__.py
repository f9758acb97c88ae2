"""The console: a Textual app over RunState. Import it lazily; Textual costs 0.2 s."""
