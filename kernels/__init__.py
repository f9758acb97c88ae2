"""Bundled workloads, one folder each, and the loader for users' own."""
