"""What a compile asks for and gives back: plain data that crosses processes and lies in the cache."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ...telemetry.occupancy import LIMITS, MAX_BLOCK, Occupancy, max_threads_per_block, occupancy
from ..errors import ExitCode, WarpdeckError
from ..model import Launch, Resources, Value
from .cache import pack, unpack
from .cubin import KernelInfo

TEXT_BYTES = 256 << 20  # of a log, or of PTX


class CompileError(WarpdeckError):
    """A candidate that doesn't compile. The message is the compiler's own, with the user's file and
    line where the compiler knows them; `log` is everything it said."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


class ToolchainError(WarpdeckError):
    """The compiler itself is missing or unusable here: no candidate could compile. As for every package that
    a command needs and that isn't installed, the exit code is that of `UsageError`."""

    exit_code = ExitCode.USAGE


# first, stride, count: the blocks first + i · stride for i < count; and their grid: x, y, z.
Blocks = tuple[int, int, int, int, int, int]


@dataclass(frozen=True)
class CompileRequest:
    """One compile, resolved. Equal `key` (see `sources.request_key`): equal result.

    `parameters` are (NumPy dtype, rank) in the kernel's order, rank -1 for a scalar; CUDA C++ needs
    none. `text` is the source of a kernel that has no file of its own.
    """

    language: str  # numba | cuda
    file: str  # the variant's file; only a display name where `text` is given
    entries: tuple[str, ...]  # kernels wanted; empty: every kernel of the file (CUDA C++)
    cc: tuple[int, int]
    parameters: tuple[tuple[str, int], ...] = ()
    knobs: Mapping[str, Value] = field(default_factory=dict)  # without reg_cap
    reg_cap: int = 0
    options: tuple[str, ...] = ()  # more compiler options, CUDA C++ only
    lineinfo: bool = True
    ptx: bool = False  # Numba: also keep PTX (CUDA C++ always does)
    text: str | None = None
    # Code of others (generated, remote): compiled in a sandbox, with headers of the toolkit and ours only.
    confined: bool = False
    # With the stage markers compiled in: a trace's descriptor comes after the parameters.
    trace: bool = False
    # Traced, and all blocks but these run the untraced code (`split.py`).
    split: Blocks | None = None

    def to_json(self) -> dict[str, Any]:
        """JSON form, for the compile process and the key."""
        return {**asdict(self), "knobs": dict(self.knobs)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CompileRequest:
        """Inverse of `to_json`."""
        return cls(
            **{
                **data,
                "entries": tuple(data["entries"]),
                "cc": tuple(data["cc"]),
                "parameters": tuple((str(d), int(n)) for d, n in data["parameters"]),
                "options": tuple(data["options"]),
                "split": data["split"] and tuple(data["split"]),
            }
        )


@dataclass(frozen=True)
class Compiled:
    """A compiled candidate, ready to load. Sizes in bytes, times in seconds."""

    language: str
    cc: tuple[int, int]
    cubin: bytes
    kernels: Mapping[str, KernelInfo]  # by entry, in the order of the launches
    code_hash: str  # over every kernel in `kernels`: equal hash, equal machine code and constants
    log: str = ""
    warnings: tuple[str, ...] = ()
    ptx: str | None = None
    seconds: float = 0.0  # spent compiling, also where the result came from the cache
    cached: bool = False
    stages: tuple[str, ...] = ()  # where traced: the stages' names; the first has id 1
    unsplit: str = ""  # where it was to be split and isn't: why
    launches: tuple[Launch, ...] = ()  # of the case it was compiled for; the first gives `resources`

    @property
    def entries(self) -> dict[str, str]:
        """Entry -> the kernel's symbol in the cubin."""
        return {entry: info.symbol for entry, info in self.kernels.items()}

    @property
    def max_threads(self) -> int:
        """The largest block that every kernel can be launched with, given its registers and bounds."""
        limits = [k.max_threads for k in self.kernels.values() if k.max_threads]
        if self.cc in LIMITS:
            limits += [max_threads_per_block(self.cc, k.registers) for k in self.kernels.values()]
        return min(limits, default=MAX_BLOCK)

    @property
    def resources(self) -> Resources:
        """Of the first launch's kernel (of the first kernel, if no launch was given).

        Without a launch, or for an architecture without known limits, there is no occupancy.
        """
        launch = self.launches[0] if self.launches else None
        entry = launch.entry if launch else next(iter(self.kernels))
        info = self.kernels[entry]
        resources = Resources(
            registers=info.registers,
            spill_bytes=info.spill_bytes,
            shared_bytes=info.shared_bytes,
            local_bytes=info.local_bytes,
            code_bytes=info.code_bytes,
            code_hash=self.code_hash,
        )
        fit = None if launch is None else self.occupancy(launch)
        return resources if fit is None else replace(resources, occupancy=fit.occupancy, limiter=fit.limiter)

    def occupancy(self, launch: Launch) -> Occupancy | None:
        """How many blocks of a launch share an SM; None for an architecture without known limits."""
        if self.cc not in LIMITS:
            return None
        info = self.kernels[launch.entry]
        threads = math.prod(launch.block)
        shared = (info.shared_bytes, launch.shared)
        return occupancy(self.cc, info.registers, threads, *shared, info.barriers)

    def with_launches(self, launches: Sequence[Launch]) -> Compiled:
        """The same code for another case's launches.

        Raises CompileError if a launch names a kernel that isn't here.
        """
        for launch in launches:
            if launch.entry not in self.kernels:
                raise CompileError(
                    f"no kernel {launch.entry!r} to launch; there is {', '.join(map(repr, self.kernels))}"
                )
        return replace(self, launches=tuple(launches))

    def to_bytes(self) -> bytes:
        """Self-checking binary form. Launches aren't part of it."""
        header = {
            "language": self.language,
            "cc": list(self.cc),
            "kernels": {entry: asdict(info) for entry, info in self.kernels.items()},
            "code_hash": self.code_hash,
            "warnings": list(self.warnings),
            "seconds": self.seconds,
            "has_ptx": self.ptx is not None,
            "stages": list(self.stages),
            "unsplit": self.unsplit,
        }
        texts = [zlib.compress(text.encode(), 1) for text in (self.log, self.ptx or "")]
        return pack(header, [self.cubin, *texts])

    @classmethod
    def from_bytes(cls, data: bytes) -> Compiled:
        """Inverse of `to_bytes`. Raises ValueError for damaged data."""
        header, (cubin, log, ptx) = unpack(data)
        return cls(
            language=header["language"],
            cc=(header["cc"][0], header["cc"][1]),
            cubin=cubin,
            kernels={
                entry: KernelInfo(**{**info, "parameters": tuple(info["parameters"])})
                for entry, info in header["kernels"].items()
            },
            code_hash=header["code_hash"],
            log=_inflated(log),
            warnings=tuple(header["warnings"]),
            ptx=_inflated(ptx) if header["has_ptx"] else None,
            seconds=header["seconds"],
            stages=tuple(header["stages"]),
            unsplit=header["unsplit"],
        )


def _inflated(data: bytes) -> str:
    """Text that may come from a process of others. Raises ValueError where it is absurdly long."""
    stream = zlib.decompressobj()
    text = stream.decompress(data, TEXT_BYTES)
    if stream.unconsumed_tail:
        raise ValueError("too much text")
    return text.decode(errors="replace")
