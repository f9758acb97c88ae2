"""Theoretical occupancy of a kernel launch on one SM, what limits it, and what one more block would need.

No GPU needed.

Limits per compute capability: the CUDA C++ Programming Guide's "Technical Specifications per Compute
Capability". Assumes the largest shared-memory carve-out, as the driver chooses where a kernel needs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

_KB = 1024
WARP = 32
MAX_BLOCK = 1024
_UNLIMITED = 1 << 30


@dataclass(frozen=True)
class SmLimits:
    """What one SM of a compute capability offers. Shared memory in bytes."""

    warps: int
    blocks: int
    shared: int  # of the SM
    shared_block: int  # of one block, opted in, without the reserved part
    shared_unit: int  # allocation granularity
    reserved: int  # the system's share of every block
    partitions: int
    barriers: int
    registers: int = 65536
    registers_block: int = 65536
    register_unit: int = 256  # allocation granularity of one warp


_A100 = SmLimits(64, 32, 164 * _KB, 163 * _KB, 128, _KB, 4, 64)
_GA10X = SmLimits(48, 16, 100 * _KB, 99 * _KB, 128, _KB, 4, 16)
_AD10X = SmLimits(48, 24, 100 * _KB, 99 * _KB, 128, _KB, 4, 24)
_H100 = SmLimits(64, 32, 228 * _KB, 227 * _KB, 128, _KB, 4, 64)
_V100 = SmLimits(64, 32, 96 * _KB, 96 * _KB, 256, 0, 4, 64)

LIMITS: Mapping[tuple[int, int], SmLimits] = {
    (6, 0): SmLimits(64, 32, 64 * _KB, 48 * _KB, 256, 0, 2, 64),
    (6, 1): SmLimits(64, 32, 96 * _KB, 48 * _KB, 256, 0, 4, 64),
    (6, 2): SmLimits(64, 32, 64 * _KB, 48 * _KB, 256, 0, 4, 64),
    (7, 0): _V100,
    (7, 2): _V100,
    (7, 5): SmLimits(32, 16, 64 * _KB, 64 * _KB, 256, 0, 4, 32),
    (8, 0): _A100,
    (8, 6): _GA10X,
    (8, 7): SmLimits(48, 16, 164 * _KB, 163 * _KB, 128, _KB, 4, 16),
    (8, 8): _GA10X,
    (8, 9): _AD10X,
    (9, 0): _H100,
    (10, 0): _H100,
    (10, 3): SmLimits(64, 32, 228 * _KB, 227 * _KB, 128, _KB, 4, 32),
    (11, 0): SmLimits(48, 24, 228 * _KB, 227 * _KB, 128, _KB, 4, 24),
    (12, 0): _AD10X,
    (12, 1): _AD10X,
}


@dataclass(frozen=True)
class Occupancy:
    """How many blocks fit on an SM, and what stops one more.

    `blocks == 0` means that the launch fails. `limits` is blocks allowed by each resource alone.
    """

    blocks: int
    warps: int
    occupancy: float  # resident warps / the SM's, 0..1
    limits: Mapping[str, int]
    limiter: str  # the tightest resource; the first of `limits` where several tie


@dataclass(frozen=True)
class Step:
    """A change that lets more warps be resident. None: that stays as it is.

    `registers` per thread and `barriers` per block at most; `shared`: bytes per block, static and dynamic
    together, at most; `threads` per block.
    """

    blocks: int
    occupancy: float
    registers: int | None = None
    shared: int | None = None
    barriers: int | None = None
    threads: int | None = None
    text: str = ""  # "2 registers fewer a thread (38) → 6 blocks an SM, 75%"


@dataclass(frozen=True)
class Row:
    """A line of the table over block sizes."""

    threads: int
    fit: Occupancy


# Block sizes of the table: powers of two, and what lies half-way, where it divides an SM more evenly.
BLOCK_SIZES = (32, 64, 96, 128, 192, 256, 384, 512, 768, 1024)


def sm_limits(cc: tuple[int, int]) -> SmLimits:
    """Limits of a compute capability. Raises ValueError outside the table (6.0 to 12.1)."""
    try:
        return LIMITS[cc]
    except KeyError:
        known = ", ".join(f"{a}.{b}" for a, b in LIMITS)
        raise ValueError(
            f"no occupancy limits for compute capability {cc[0]}.{cc[1]}; known: {known}"
        ) from None


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def _register_limit(cc: tuple[int, int], sm: SmLimits, registers: int, warps: int) -> int:
    """Blocks the register file allows; 0 where even one is refused."""
    if registers == 0:
        return _UNLIMITED
    per_warp = _round_up(registers * WARP, sm.register_unit)
    # A block's warps are dealt evenly to the partitions, so its last round counts whole.
    dealt = _round_up(warps, 4 if cc == (6, 0) else sm.partitions)
    if registers > 255 or per_warp * dealt > sm.registers_block:
        return 0
    return (sm.registers // sm.partitions // per_warp) * sm.partitions // warps


def _shared_limit(sm: SmLimits, nbytes: int) -> int:
    """Blocks the shared memory allows; 0 where even one is refused."""
    shared = _round_up(nbytes + sm.reserved, sm.shared_unit)
    if shared > sm.shared_block + sm.reserved:
        return 0
    return sm.shared // shared if shared else _UNLIMITED


def occupancy(
    cc: tuple[int, int],
    registers: int,
    threads: int,
    static_shared: int = 0,
    dynamic_shared: int = 0,
    barriers: int = 0,
) -> Occupancy:
    """Theoretical occupancy of blocks of `threads` threads.

    Args:
        cc: Compute capability, for example (9, 0).
        registers: Per thread, as the compiler reports them; 0 for unknown.
        threads: Per block, 1 to 1024.
        static_shared: Bytes per block, without the architecture's reserved kilobyte.
        dynamic_shared: Bytes per block, as launched.
        barriers: Named barriers per block; they limit from compute capability 9.0.

    Raises:
        ValueError: an unknown compute capability, or a negative or impossible number.
    """
    sm = sm_limits(cc)
    if not 1 <= threads <= MAX_BLOCK:
        raise ValueError(f"a block has 1 to {MAX_BLOCK} threads, not {threads}")
    if min(registers, static_shared, dynamic_shared, barriers) < 0:
        raise ValueError("registers, shared memory and barriers can't be negative")
    warps = _round_up(threads, WARP) // WARP
    limits = {
        "warps": sm.warps // warps,
        "blocks": sm.blocks,
        "registers": _register_limit(cc, sm, registers, warps),
        "shared memory": _shared_limit(sm, static_shared + dynamic_shared),
    }
    if cc[0] >= 9 and barriers:
        limits["barriers"] = sm.barriers // barriers
    blocks = min(limits.values())
    limiter = next(name for name, allowed in limits.items() if allowed == blocks)
    return Occupancy(blocks, blocks * warps, blocks * warps / sm.warps, limits, limiter)


def fits_beside(
    cc: tuple[int, int], registers: int, threads: int, shared: int, blocks: int, own_registers: int
) -> bool:
    """Whether an SM has room for a block of one warp, without shared memory, beside blocks of a kernel.

    Sure if it says so: registers and warps are counted as if each of the SM's partitions held that warp.

    Args:
        cc: Compute capability.
        registers, threads, shared: Of the kernel, as in `occupancy`; shared memory in all.
        blocks: Of the kernel, that are on the SM at a time.
        own_registers: Of the one warp, per thread.
    """
    sm = sm_limits(cc)
    left = sm.registers // sm.partitions - _round_up(own_registers * WARP, sm.register_unit)
    held = min(left // _round_up(max(registers, 1) * WARP, sm.register_unit), sm.warps // sm.partitions - 1)
    kernel, own = (_round_up(size + sm.reserved, sm.shared_unit) for size in (shared, 0))
    return (
        blocks < sm.blocks
        and blocks * _round_up(threads, WARP) // WARP <= held * sm.partitions
        and blocks * kernel + own <= sm.shared
    )


def next_steps(
    cc: tuple[int, int],
    registers: int,
    threads: int,
    static_shared: int = 0,
    dynamic_shared: int = 0,
    barriers: int = 0,
) -> tuple[Step, ...]:
    """What would let more warps be resident, each the smallest such change; none where all are.

    First what a thread or block may use for one more block to fit, then the nearest block size with a higher
    occupancy (its other numbers unchanged). Either may be missing. Arguments and errors as of `occupancy`.
    """
    fit = occupancy(cc, registers, threads, static_shared, dynamic_shared, barriers)
    if fit.occupancy == 1:
        return ()
    shared = static_shared + dynamic_shared
    found = [
        _leaner(cc, registers, threads, shared, barriers, fit),
        _reshaped(cc, registers, threads, shared, barriers, fit),
    ]
    return tuple(step for step in found if step is not None)


def _leaner(
    cc: tuple[int, int], registers: int, threads: int, shared: int, barriers: int, fit: Occupancy
) -> Step | None:
    """The most that each resource may use so that one more block fits."""
    sm, target = sm_limits(cc), fit.blocks + 1
    if target > min(fit.limits["warps"], fit.limits["blocks"]):
        return None
    warps = _round_up(threads, WARP) // WARP
    fewer: int | None = registers
    if fit.limits["registers"] < target:
        fewer = next(
            (r for r in range(registers, 0, -1) if _register_limit(cc, sm, r, warps) >= target), None
        )
    less = shared
    if fit.limits["shared memory"] < target:
        most = min(sm.shared // target, sm.shared_block + sm.reserved)
        less = most // sm.shared_unit * sm.shared_unit - sm.reserved
    ids = min(barriers, sm.barriers // target) if "barriers" in fit.limits else barriers
    if fewer is None or less < 0 or (barriers and not ids):
        return None
    after = occupancy(cc, fewer, threads, less, 0, ids)
    said = []
    if fewer != registers:
        said.append(f"{registers - fewer} {_plural('register', registers - fewer)} fewer a thread ({fewer})")
    if less != shared:
        said.append(
            f"{shared - less} {_plural('byte', shared - less)} of shared memory fewer a block ({less})"
        )
    if ids != barriers:
        said.append(f"{barriers - ids} {_plural('barrier', barriers - ids)} fewer a block ({ids})")
    return Step(
        after.blocks,
        after.occupancy,
        registers=fewer if fewer != registers else None,
        shared=less if less != shared else None,
        barriers=ids if ids != barriers else None,
        text=f"{' and '.join(said)} → {_outcome(after)}",
    )


def _reshaped(
    cc: tuple[int, int], registers: int, threads: int, shared: int, barriers: int, fit: Occupancy
) -> Step | None:
    """The nearest block size, in whole warps, at which more warps are resident."""
    sizes = sorted(range(WARP, MAX_BLOCK + 1, WARP), key=lambda size: (abs(size - threads), size))
    for size in sizes:
        after = occupancy(cc, registers, size, shared, 0, barriers)
        if after.occupancy > fit.occupancy:
            return Step(
                after.blocks,
                after.occupancy,
                threads=size,
                text=f"{size} threads a block instead of {threads} → {_outcome(after)}",
            )
    return None


def _outcome(fit: Occupancy) -> str:
    return f"{fit.blocks} {_plural('block', fit.blocks)} an SM, {fit.occupancy * 100:.4g}%"


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"


def table(
    cc: tuple[int, int],
    registers: int,
    static_shared: int = 0,
    dynamic_shared: int = 0,
    barriers: int = 0,
    sizes: Sequence[int] = BLOCK_SIZES,
) -> list[Row]:
    """Occupancy at each block size, everything else the same. Arguments and errors as of `occupancy`."""
    return [
        Row(size, occupancy(cc, registers, size, static_shared, dynamic_shared, barriers)) for size in sizes
    ]


def document(
    cc: tuple[int, int],
    registers: int,
    threads: int,
    static_shared: int = 0,
    dynamic_shared: int = 0,
    barriers: int = 0,
) -> dict[str, Any]:
    """All of it as `warpdeck occupancy --json` prints it. Arguments and errors as of `occupancy`."""
    sm = sm_limits(cc)
    fit = occupancy(cc, registers, threads, static_shared, dynamic_shared, barriers)
    steps = next_steps(cc, registers, threads, static_shared, dynamic_shared, barriers)
    rows = table(cc, registers, static_shared, dynamic_shared, barriers, sorted({*BLOCK_SIZES, threads}))
    return {
        "compute_capability": f"{cc[0]}.{cc[1]}",
        "registers": registers,
        "threads": threads,
        "static_shared": static_shared,
        "dynamic_shared": dynamic_shared,
        "barriers": barriers,
        "sm": {"warps": sm.warps, "blocks": sm.blocks, "registers": sm.registers, "shared": sm.shared},
        **_fit_json(fit),
        "next": [asdict(step) for step in steps],
        "table": [{"threads": row.threads, **_fit_json(row.fit)} for row in rows],
    }


def _fit_json(fit: Occupancy) -> dict[str, Any]:
    limits = {name: None if n >= _UNLIMITED else n for name, n in fit.limits.items()}
    return {
        "blocks": fit.blocks,
        "warps": fit.warps,
        "occupancy": fit.occupancy,
        "limiter": fit.limiter,
        "limits": limits,
    }


def max_threads_per_block(cc: tuple[int, int], registers: int) -> int:
    """The largest block (a multiple of 32) that `registers` per thread allow; at most 1024."""
    sm = sm_limits(cc)
    fits = (
        warps * WARP
        for warps in range(MAX_BLOCK // WARP, 0, -1)
        if _register_limit(cc, sm, registers, warps) > 0
    )
    return next(fits, 0)
