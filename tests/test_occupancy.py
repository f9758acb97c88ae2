"""Occupancy: cases from the architectures' tables, properties, and NVIDIA's own header as an oracle."""

from __future__ import annotations

import importlib.util
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpdeck.telemetry.occupancy import (
    LIMITS,
    Occupancy,
    document,
    fits_beside,
    max_threads_per_block,
    next_steps,
    occupancy,
    sm_limits,
    table,
)

CC = st.sampled_from(sorted(LIMITS))
THREADS = st.integers(1, 1024)
REGISTERS = st.integers(0, 255)
SHARED = st.integers(0, 228 * 1024)


@pytest.mark.parametrize(
    ("cc", "registers", "threads", "static", "dynamic", "blocks", "limiter"),
    [
        ((9, 0), 32, 256, 0, 0, 8, "warps"),
        ((9, 0), 64, 256, 0, 0, 4, "registers"),
        ((9, 0), 65, 256, 0, 0, 3, "registers"),  # allocated as 72
        ((9, 0), 255, 256, 0, 0, 1, "registers"),
        ((9, 0), 255, 512, 0, 0, 0, "registers"),  # the launch fails
        ((9, 0), 16, 32, 0, 0, 32, "blocks"),
        ((9, 0), 32, 128, 48 * 1024, 0, 4, "shared memory"),  # 49 KB of 228 with the reserved one
        ((9, 0), 32, 128, 0, 227 * 1024, 1, "shared memory"),
        ((9, 0), 32, 128, 1, 227 * 1024, 0, "shared memory"),
        ((8, 6), 32, 1024, 0, 0, 1, "warps"),
        ((7, 5), 32, 256, 0, 0, 4, "warps"),
        ((7, 0), 32, 64, 96 * 1024, 0, 1, "shared memory"),
        ((6, 0), 32, 1024, 0, 48 * 1024, 1, "shared memory"),
        ((12, 0), 128, 256, 0, 0, 2, "registers"),
    ],
)
def test_known_cases(cc, registers, threads, static, dynamic, blocks, limiter):
    fit = occupancy(cc, registers, threads, static, dynamic)
    assert (fit.blocks, fit.limiter) == (blocks, limiter)
    assert fit.warps == blocks * -(-threads // 32)
    assert fit.occupancy == fit.warps / sm_limits(cc).warps


def test_barriers_limit_from_hopper_on():
    assert occupancy((9, 0), 16, 32, barriers=16).blocks == 4
    assert occupancy((9, 0), 16, 32, barriers=16).limiter == "barriers"
    assert occupancy((8, 0), 16, 32, barriers=16).limiter == "blocks"


@given(CC, REGISTERS, THREADS, SHARED, SHARED)
def test_bounds(cc, registers, threads, static, dynamic):
    fit = occupancy(cc, registers, threads, static, dynamic)
    sm = sm_limits(cc)
    assert 0 <= fit.occupancy <= 1
    assert 0 <= fit.blocks <= sm.blocks
    assert fit.warps <= sm.warps
    assert fit.blocks * registers * threads <= sm.registers
    assert fit.blocks * (static + dynamic) <= sm.shared
    assert fit.blocks == min(fit.limits.values()) == fit.limits[fit.limiter]


@given(CC, REGISTERS, REGISTERS, THREADS, SHARED, SHARED)
def test_more_resources_never_fit_better(cc, some, more, threads, small, large):
    some, more = sorted((some, more))
    small, large = sorted((small, large))
    assert occupancy(cc, more, threads).blocks <= occupancy(cc, some, threads).blocks
    assert occupancy(cc, some, threads, large).blocks <= occupancy(cc, some, threads, small).blocks


@given(CC, REGISTERS, SHARED, st.integers(0, 64))
def test_static_and_dynamic_shared_memory_count_alike(cc, registers, shared, part):
    split = shared * part // 64
    assert occupancy(cc, registers, 128, shared) == occupancy(cc, registers, 128, split, shared - split)


@given(CC, st.integers(1, 255), THREADS, SHARED, st.integers(1, 32), st.integers(1, 128))
def test_a_warp_has_room_beside_blocks_only_if_these_have_room(cc, registers, threads, shared, blocks, own):
    if fits_beside(cc, registers, threads, shared, blocks, own):
        sm = sm_limits(cc)
        assert blocks * threads < 32 * sm.warps and blocks < sm.blocks
        if shared <= sm.shared_block and occupancy(cc, registers, threads, shared).blocks:
            assert blocks <= occupancy(cc, registers, threads, shared).blocks
        assert fits_beside(cc, registers, threads, shared, max(blocks - 1, 1), own)


def test_known_rooms():
    hopper = (9, 0)
    assert fits_beside(hopper, 32, 1024, 0, 1, 64) and not fits_beside(hopper, 32, 1024, 0, 2, 64)
    assert fits_beside(hopper, 255, 32, 225 << 10, 1, 64)
    assert not fits_beside(hopper, 255, 32, 227 << 10, 1, 64)  # a kilobyte is the system's own in every block
    assert not fits_beside(hopper, 60, 256, 2048, 4, 64)  # all registers are taken
    assert fits_beside(hopper, 60, 256, 2048, 3, 64)


@given(CC, REGISTERS)
def test_max_threads_is_the_largest_block_that_launches(cc, registers):
    threads = max_threads_per_block(cc, registers)
    assert threads % 32 == 0 and 32 <= threads <= 1024
    assert occupancy(cc, registers, threads).blocks > 0
    if threads < 1024:
        assert occupancy(cc, registers, threads + 1).blocks == 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (((5, 2), 32, 256), "5.2"),
        (((9, 0), 32, 0), "1 to 1024"),
        (((9, 0), 32, 1025), "1 to 1024"),
        (((9, 0), -1, 256), "negative"),
        (((9, 0), 32, 256, -1), "negative"),
    ],
)
def test_impossible_numbers_are_refused(arguments, problem):
    with pytest.raises(ValueError, match=problem):
        occupancy(*arguments)


@pytest.mark.parametrize(
    ("arguments", "texts"),
    [
        (((9, 0), 32, 256), []),  # every warp slot is filled
        (((9, 0), 42, 256), ["2 registers fewer a thread (40) → 6 blocks an SM, 75%"]),
        (
            ((9, 0), 64, 256, 48 * 1024),
            [
                "16 registers fewer a thread (48) and 3584 bytes of shared memory fewer a block (45568)"
                " → 5 blocks an SM, 62.5%"
            ],
        ),
        (((8, 6), 32, 1024), ["768 threads a block instead of 1024 → 2 blocks an SM, 100%"]),
        (((9, 0), 16, 32), ["64 threads a block instead of 32 → 32 blocks an SM, 100%"]),
    ],
)
def test_the_next_step_in_words(arguments, texts):
    assert [step.text for step in next_steps(*arguments)][: len(texts) or None] == texts


@given(CC, st.integers(1, 255), THREADS, SHARED, st.integers(0, 64))
def test_the_next_step_fits_more_and_is_the_smallest(cc, registers, threads, shared, barriers):
    fit = occupancy(cc, registers, threads, shared, 0, barriers)
    steps = next_steps(cc, registers, threads, shared, 0, barriers)
    if fit.occupancy == 1:
        assert steps == ()
    for step in steps:
        assert step.occupancy > fit.occupancy and step.text
        given_ = {"registers": registers, "threads": threads, "shared": shared, "barriers": barriers}
        wanted = {name: getattr(step, name) for name in given_ if getattr(step, name) is not None}
        after = {**given_, **wanted}
        found = occupancy(cc, after["registers"], after["threads"], after["shared"], 0, after["barriers"])
        assert (found.blocks, found.occupancy) == (step.blocks, step.occupancy)
        for name in set(wanted) - {"threads"}:  # one more of any, and it is as it was
            assert wanted[name] < given_[name]
            less = {**after, name: wanted[name] + 1}
            short = occupancy(cc, less["registers"], threads, less["shared"], 0, less["barriers"])
            assert short.blocks <= fit.blocks


@given(CC, st.integers(1, 255), SHARED)
def test_no_block_size_between_beats_the_reshaped_one(cc, registers, shared):
    fit = occupancy(cc, registers, 256, shared)
    best = max(occupancy(cc, registers, size, shared).occupancy for size in range(32, 1025, 32))
    reshaped = [step for step in next_steps(cc, registers, 256, shared) if step.threads is not None]
    assert bool(reshaped) == (best > fit.occupancy)
    for step in reshaped:
        distance = abs((step.threads or 0) - 256)
        nearer = range(256 - distance + 32, 256 + distance, 32)
        assert all(occupancy(cc, registers, size, shared).occupancy <= fit.occupancy for size in nearer)


def test_the_table_and_the_document_agree():
    found = document((9, 0), 40, 250, 512, 1024)
    assert [row["threads"] for row in found["table"]].count(250) == 1
    for row, line in zip(table((9, 0), 40, 512, 1024, sizes=[64, 250]), [64, 250], strict=True):
        known = next(r for r in found["table"] if r["threads"] == line)
        assert (known["blocks"], known["occupancy"]) == (row.fit.blocks, row.fit.occupancy)
    assert found["occupancy"] == occupancy((9, 0), 40, 250, 1536).occupancy
    assert document((9, 0), 0, 32)["limits"]["registers"] is None  # unknown registers bound nothing


ORACLE = r"""
#include <cstddef>
#include <cstring>
#include <climits>
#include <cstdio>
#include "cuda_occupancy.h"
int main() {
  int major, minor, warps, blocks, registers, threads, barriers; size_t sm, optin, block, reserved, st, dy;
  while (scanf("%d %d %d %zu %zu %zu %zu %d %d %zu %zu %d", &major, &minor, &warps, &sm, &block, &optin,
               &reserved, &registers, &threads, &st, &dy, &barriers) == 12) {
    cudaOccDeviceProp p; memset(&p, 0, sizeof p);
    p.computeMajor = major; p.computeMinor = minor; p.maxThreadsPerBlock = 1024;
    p.maxThreadsPerMultiprocessor = warps * 32; p.regsPerBlock = 65536; p.regsPerMultiprocessor = 65536;
    p.warpSize = 32; p.sharedMemPerBlock = block; p.sharedMemPerMultiprocessor = sm; p.numSms = 100;
    p.sharedMemPerBlockOptin = optin; p.reservedSharedMemPerBlock = reserved;
    cudaOccFuncAttributes a; memset(&a, 0, sizeof a);
    a.maxThreadsPerBlock = INT_MAX; a.numRegs = registers; a.sharedSizeBytes = st;
    a.partitionedGCConfig = PARTITIONED_GC_OFF; a.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    a.maxDynamicSharedSizeBytes = dy; a.numBlockBarriers = barriers;
    cudaOccDeviceState s; s.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
    cudaOccResult r;
    if (cudaOccMaxActiveBlocksPerMultiprocessor(&r, &p, &a, &s, threads, dy)) printf("error\n");
    else printf("%d %d %d %d %d %d\n", r.activeBlocksPerMultiprocessor, r.blockLimitWarps, r.blockLimitBlocks,
                r.blockLimitRegs, r.blockLimitSharedMem, r.blockLimitBarriers);
  }
}
"""


@pytest.fixture(scope="module")
def oracle(tmp_path_factory):
    spec = importlib.util.find_spec("nvidia")
    roots = [
        Path("/usr/local/cuda"),
        *(Path(p, "cu13") for p in (spec and spec.submodule_search_locations) or ()),
    ]
    headers = (root / "include" / "cuda_occupancy.h" for root in roots)
    header = next((file for file in headers if file.is_file()), None)
    compiler = shutil.which("g++")
    if header is None or compiler is None:
        pytest.skip("needs g++ and a CUDA toolkit's cuda_occupancy.h")
    folder = tmp_path_factory.mktemp("oracle")
    (folder / "oracle.cpp").write_text(ORACLE)
    subprocess.run(
        [compiler, "-O1", f"-I{header.parent}", "oracle.cpp", "-o", "oracle"], cwd=folder, check=True
    )
    return folder / "oracle"


def test_equals_the_cuda_header(oracle):
    draw = random.Random(1)
    cases, lines = [], []
    for _ in range(20_000):
        cc = draw.choice(sorted(LIMITS))
        sm = sm_limits(cc)
        registers, threads = draw.randint(1, 255), draw.randint(1, 1024)
        static = draw.choice([0, draw.randint(0, 48 * 1024)])
        dynamic = draw.choice([0, draw.randint(0, sm.shared)])
        barriers = (
            0 if cc == (10, 3) else draw.choice([0, 1, 16])
        )  # 10.3 has 64 in 13.0's header, 32 in 13.5's
        cases.append((cc, registers, threads, static, dynamic, barriers))
        numbers = (*cc, sm.warps, sm.shared, 48 * 1024, sm.shared_block, sm.reserved)
        lines.append(" ".join(map(str, (*numbers, registers, threads, static, dynamic, barriers))))
    answers = subprocess.run([oracle], input="\n".join(lines), capture_output=True, text=True, check=True)
    expected = answers.stdout.splitlines()
    assert len(expected) == len(cases)
    wrong = [
        (c, e, fit) for c, e in zip(cases, expected, strict=True) if e != _as_header(fit := occupancy(*c))
    ]
    assert not wrong, (len(wrong), wrong[:5])


def _as_header(fit: Occupancy) -> str:
    """Blocks, and those that each resource allows, INT_MAX where it doesn't limit."""
    names = ("warps", "blocks", "registers", "shared memory", "barriers")
    allowed = [fit.limits.get(name, 1 << 30) for name in names]
    return " ".join(str(n if n < 1 << 30 else 2**31 - 1) for n in (fit.blocks, *allowed))
