"""Compiling candidates to cubins, without a GPU."""
