"""Fresh, killable processes that hold one CUDA context each, and the jobs they do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import exports

if TYPE_CHECKING:
    from .client import KERNEL_S, ForkServer, WorkerHandle
    from .exchange import Exchange
    from .faults import WorkerDied, WorkerFault, WorkerTimeout
    from .workers import Workers

__getattr__ = exports(
    __name__,
    {
        "client": ("KERNEL_S", "ForkServer", "WorkerHandle"),
        "exchange": ("Exchange",),
        "faults": ("WorkerDied", "WorkerFault", "WorkerTimeout"),
        "workers": ("Workers",),
    },
)

__all__ = [
    "KERNEL_S",
    "Exchange",
    "ForkServer",
    "WorkerDied",
    "WorkerFault",
    "WorkerHandle",
    "WorkerTimeout",
    "Workers",
]
