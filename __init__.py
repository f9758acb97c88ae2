"""Tune CUDA kernels: measured, checked, recorded, replayable.

Public names load on first use, so that `import warpdeck` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from .api import bench as bench
    from .api import open_bench as open_bench
    from .api import profile as profile
    from .api import run_agent as run_agent
    from .api import trace as trace
    from .core.bench import Bench as Bench
    from .core.compare import Comparison as Comparison
    from .core.errors import BudgetError as BudgetError
    from .core.errors import NoDeviceError as NoDeviceError
    from .core.errors import UsageError as UsageError
    from .core.errors import VerificationError as VerificationError
    from .core.errors import WarpdeckError as WarpdeckError
    from .core.model import CacheMode as CacheMode
    from .core.model import Candidate as Candidate
    from .core.model import Case as Case
    from .core.model import DeviceInfo as DeviceInfo
    from .core.model import Evaluation as Evaluation
    from .core.model import Measurement as Measurement
    from .core.model import Protocol as Protocol
    from .core.model import Status as Status
    from .core.ranking import Result as Result
    from .core.tracing import TraceOptions as TraceOptions
    from .core.workload import Workload as Workload
    from .kernels.loader import list_workloads as list_workloads
    from .kernels.loader import load_workload as load_workload
    from .kernels.recordings import open_device as open_device
    from .sessions.frames import Frames as Frames
    from .sessions.frames import read_session as read_session
    from .sessions.launch import launch_run as launch_run
    from .sessions.launch import resume_run as resume_run
    from .sessions.launch import stop_run as stop_run
    from .sessions.listing import list_sessions as list_sessions
    from .sessions.spec import RunSpec as RunSpec
    from .sessions.tail import follow as follow
    from .telemetry.ncu.counters import Counters as Counters
    from .telemetry.trace.timeline import Timeline as Timeline

_HOME = {
    "api": ("bench", "open_bench", "profile", "run_agent", "trace"),
    "core.bench": ("Bench",),
    "core.compare": ("Comparison",),
    "core.errors": ("BudgetError", "NoDeviceError", "UsageError", "VerificationError", "WarpdeckError"),
    "core.model": (
        "CacheMode",
        "Candidate",
        "Case",
        "DeviceInfo",
        "Evaluation",
        "Measurement",
        "Protocol",
        "Status",
    ),
    "core.ranking": ("Result",),
    "core.tracing": ("TraceOptions",),
    "core.workload": ("Workload",),
    "kernels.loader": ("list_workloads", "load_workload"),
    "kernels.recordings": ("open_device",),
    "sessions.frames": ("Frames", "read_session"),
    "sessions.launch": ("launch_run", "resume_run", "stop_run"),
    "sessions.listing": ("list_sessions",),
    "sessions.spec": ("RunSpec",),
    "sessions.tail": ("follow",),
    "telemetry.ncu.counters": ("Counters",),
    "telemetry.trace.timeline": ("Timeline",),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = ["__version__", *sorted(_MODULE_OF)]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'warpdeck' has no attribute '{name}'")
    value = getattr(importlib.import_module(f".{_MODULE_OF[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
