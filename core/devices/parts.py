"""What everything that judges one workload on one CUDA device works with."""

from __future__ import annotations

from typing import NamedTuple

from ..check.ahead import ReadyPlan
from ..worker.session import Session
from ..workload import Workload
from .codes import Codes


class Parts(NamedTuple):
    """`workload`: whose candidates; `ready`: its inputs, references and correctness cases; `session`: runs
    candidates in workers; `codes`: has their machine code."""

    workload: Workload
    ready: ReadyPlan
    session: Session
    codes: Codes
