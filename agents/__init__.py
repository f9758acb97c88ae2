"""Strategies that search a space through a bench."""
