"""The package's version, in one place that the build can read without importing anything."""

__version__ = "0.1.0"
