"""Bundled workloads, one folder each, and the loader for users' own."""

from .loader import list_workloads, load_workload

__all__ = ["list_workloads", "load_workload"]
