"""What this machine can do, in a few lines, from doctor's checks; and the checks themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..core.doctor import Check

# What people come for: the checks that it takes.
ABILITIES = (
    ("measure on this GPU", ("driver", "gpu", "cuda driver api", "numba", "nvrtc", "cupti")),
    ("tune on recordings", ("python",)),
    ("read hardware counters", ("gpu", "ncu", "ncu counter permission")),
    ("run generated code", ("sandbox",)),
    ("train with reinforcement learning", ("reinforcement learning",)),
    ("keep sessions", ("disk space", "file system")),
)


@dataclass(frozen=True)
class Ability:
    """`lacks`: the first check in the way, with its remedy; None if it works."""

    words: str
    lacks: Check | None


def abilities(checks: Sequence[Check]) -> list[Ability]:
    """Each thing that people come for. A check that wasn't made speaks against nothing."""
    known = {check.name: check for check in checks}
    return [
        Ability(words, next((known[name] for name in needed if name in known and not known[name].ok), None))
        for words, needed in ABILITIES
    ]


def examine() -> list[Check]:
    """Doctor's checks of this machine; takes seconds."""
    from ..core import doctor
    from ..sessions import paths

    home = paths.home()
    kind = paths.filesystem(home.path)
    return doctor.examine(home.path, filesystem=kind, network=paths.is_network(kind))
