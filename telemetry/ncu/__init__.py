"""Nsight Compute: which counters to ask for, how to run it, how to read and explain what it says."""
