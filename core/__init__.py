"""The core: what is measured, how it is compiled, checked, timed and ranked."""
