"""Names that a shell completes. Each function is called while someone waits for a key: it lists, and reads
nothing. A shell offers files where these offer nothing.
"""

from __future__ import annotations

from ..core.errors import WarpdeckError


def workloads(incomplete: str) -> list[str]:
    """Bundled workloads."""
    from ..kernels.loader import list_workloads

    return _beginning(list_workloads(), incomplete)


def devices(incomplete: str) -> list[str]:
    """Devices that are known without asking a driver."""
    from ..kernels.recordings import recording_files

    recorded = sorted({f"recorded:{file.name.partition('-')[0]}" for file in recording_files()})
    return _beginning(["auto", "cpu", "cuda:0", *recorded], incomplete)


def agents(incomplete: str) -> list[str]:
    """Agents."""
    from ..agents.registry import AGENTS

    return _beginning(list(AGENTS), incomplete)


def runs(incomplete: str) -> list[str]:
    """Sessions of this home, newest first."""
    from ..sessions import paths

    try:
        found = [folder.name for folder in reversed(paths.session_folders())]
    except (OSError, WarpdeckError):  # a shell's line is no place to complain
        found = []
    return _beginning([*found, "last"], incomplete)


def sessions(incomplete: str) -> list[str]:
    """Those, and the ones that ship."""
    from ..sessions import examples

    return list(dict.fromkeys([*runs(incomplete), *_beginning(examples.names(), incomplete)]))


def _beginning(names: list[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
