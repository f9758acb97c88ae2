"""Checking a candidate's outputs against the workload's reference."""
