"""Registers the Gymnasium environment without importing Gymnasium.

Gymnasium takes 50 ms to import and most processes that import `warpdeck.agents` never need it. So where it
isn't loaded yet, an import hook waits for it: whichever of the two is imported first, `gymnasium.make` knows
the id.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

ENV_ID = "warpdeck/KernelTuning-v0"
ENTRY_POINT = "warpdeck.agents.env:KernelOptimizationEnv"


def register_environment() -> None:
    """Register the id now if Gymnasium is loaded, else as soon as it is."""
    if "gymnasium" in sys.modules:
        _register()
    elif not any(isinstance(finder, _AfterGymnasium) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterGymnasium())


def _register() -> None:
    import gymnasium

    if ENV_ID not in gymnasium.registry:
        # A live device's times never repeat; on recordings everything follows from the seed all the same.
        gymnasium.register(ENV_ID, ENTRY_POINT, nondeterministic=True)


class _AfterGymnasium(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "gymnasium" or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_register(module: ModuleType) -> None:
            execute(module)
            _register()

        spec.loader.exec_module = execute_and_register
        return spec
