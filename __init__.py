"""Tune CUDA kernels: measured, checked, recorded, replayable.

Public names load on first use, so that `import warpdeck` costs nothing.
"""

from __future__ import annotations

from ._version import __version__

__all__ = ["__version__"]
