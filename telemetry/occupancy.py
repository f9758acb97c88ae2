"""Theoretical occupancy of a kernel launch on one SM, from the architecture's limits; no GPU needed.

Limits per compute capability: the CUDA C++ Programming Guide's "Technical Specifications per Compute
Capability". Assumes the largest shared-memory carve-out, as the driver chooses where a kernel needs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
    shared = _round_up(static_shared + dynamic_shared + sm.reserved, sm.shared_unit)
    if shared > sm.shared_block + sm.reserved:
        by_shared = 0
    else:
        by_shared = sm.shared // shared if shared else _UNLIMITED
    limits = {
        "warps": sm.warps // warps,
        "blocks": sm.blocks,
        "registers": _register_limit(cc, sm, registers, warps),
        "shared memory": by_shared,
    }
    if cc[0] >= 9 and barriers:
        limits["barriers"] = sm.barriers // barriers
    blocks = min(limits.values())
    limiter = next(name for name, allowed in limits.items() if allowed == blocks)
    return Occupancy(blocks, blocks * warps, blocks * warps / sm.warps, limits, limiter)


def max_threads_per_block(cc: tuple[int, int], registers: int) -> int:
    """The largest block (a multiple of 32) that `registers` per thread allow; at most 1024."""
    sm = sm_limits(cc)
    fits = (
        warps * WARP
        for warps in range(MAX_BLOCK // WARP, 0, -1)
        if _register_limit(cc, sm, registers, warps) > 0
    )
    return next(fits, 0)
