"""Versions of what results depend on, for sessions and recordings."""

from __future__ import annotations

import importlib.metadata
import platform

from .. import __version__

PACKAGES = (
    "numpy",
    "numba",
    "numba-cuda",
    "llvmlite",
    "cuda-bindings",
    "nvidia-cuda-cupti",
    "nvidia-cuda-nvrtc",
    "nvidia-nvjitlink",
    "nvidia-nvvm",
    "optuna",
    "torch",
    "stable-baselines3",
)


def versions() -> dict[str, str]:
    """Versions of warpdeck, Python and the packages that results depend on. Imports none of them."""
    found = {"warpdeck": __version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
