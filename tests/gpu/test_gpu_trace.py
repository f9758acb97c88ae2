"""Traces on a real GPU: bundled variants, small buffers, selections, guards, times against globaltimer."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from warpdeck.core.devices.base import Backend, Device
from warpdeck.core.devices.probe import select
from warpdeck.core.errors import UsageError, VerificationError, WarpdeckError
from warpdeck.core.model import CacheMode, Candidate, Case
from warpdeck.core.toolchain import CompileError
from warpdeck.core.tracing import TraceOptions, decoded
from warpdeck.core.workload import Workload
from warpdeck.kernels import load_workload
from warpdeck.kernels.recordings import open_device
from warpdeck.telemetry.trace import layout

pytestmark = pytest.mark.gpu

SIZE = 256
MARKED = ("gemm", "reduction", "softmax")  # with stages; the rungs of the ladders have none
BUNDLED = [
    (name, space.name)
    for name in MARKED
    for workload in [load_workload(name)]
    for space in workload.spaces.values()
    if workload.variant(space.variant).ladder is None
]
BRIEF = TraceOptions(overhead=False)
SPLIT = TraceOptions(overhead=False, split=True)

TOML = """
[workload]
name = "own"
description = "y = 2x"
entry = "own"

[[argument]]
name = "x"
kind = "buffer"
dtype = "float32"
shape = ["n"]
direction = "in"

[[argument]]
name = "y"
kind = "buffer"
dtype = "float32"
shape = ["n"]
direction = "out"

[[argument]]
name = "n"
kind = "scalar"
dtype = "int32"
value = "n"

[[case]]
name = "odd"
role = "correctness"
n = 1003

[[case]]
name = "64k"
role = "performance"
n = 65536

[launch]
block = ["BLOCK"]
grid = ["ceil_div(n, BLOCK)"]

[knobs]
BLOCK = [128]
"""
HEAD = """#include <warpdeck/trace.cuh>
WD_STAGES(busy, ns)
extern "C" __global__ void own(const float* x, float* y, int n WD_TRACE_PARAM) {
    WD_TRACE_BEGIN();
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
"""
TAIL = """
    if (i < n) y[i] = 2.0f * x[i];
    WD_TRACE_END();
}
"""
TRACED = "#ifdef WARPDECK_TRACE\n{}\n#endif"
DESCRIPTOR = "if (wd_trace.rows && i == 0) {{ const auto& d = wd_trace; {} }}"


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    opened = open_device("cuda:0")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def backends(device: Device) -> Iterator[dict[str, tuple[Workload, Case, Backend]]]:
    made = {}
    for name in MARKED:
        workload = load_workload(name)
        case = workload.size_case(SIZE)
        space = next(iter(workload.spaces))
        made[name] = workload, case, device.prepare(workload, space=space, cases=[case], seed=1)
    yield made
    for _, _, backend in made.values():
        backend.close()


def candidate_of(workload: Workload, space: str, case: Case) -> Candidate:
    """The space's baseline if it has one, else its first valid configuration."""
    declared = workload.spaces[space]
    valid = declared.configs(case.params)
    config = declared.baseline if declared.baseline in valid else valid[0]
    assert config is not None
    return workload.candidate(space, config)


class Own:
    """A workload of one kernel, from a body between its first and its last marker."""

    def __init__(
        self, device: Device, folder: Path, body: str, *, head: str = HEAD, tail: str = TAIL
    ) -> None:
        (folder / "workload.toml").write_text(TOML)
        (folder / "reference.py").write_text("def reference(x):\n    return 2 * x\n")
        (folder / "kernel.cu").write_text(head + body + tail)
        self.workload = load_workload(folder)
        self.case = next(c for c in self.workload.cases if c.name == "64k")
        space = next(iter(self.workload.spaces))
        self.candidate = self.workload.candidate(space, {"BLOCK": 128})
        self.backend = device.prepare(self.workload, space=space, cases=[self.case], seed=1)

    def trace(self, options: TraceOptions = BRIEF) -> Any:
        try:
            return self.backend.trace(self.candidate, self.case, options)
        finally:
            self.backend.close()


@pytest.mark.parametrize(("name", "space"), BUNDLED)
def test_every_bundled_variant(backends: Any, device: Device, name: str, space: str) -> None:
    """Outputs are checked by the trace itself, and so is every byte around the records."""
    workload, case, backend = backends[name]
    candidate = candidate_of(workload, space, case)
    raw = backend.trace(candidate, case, TraceOptions())
    launch = workload.launches(candidate, case)[0]
    chosen = select(launch, TraceOptions())
    timeline = decoded(raw)
    assert len(timeline.warps.cta) == chosen.rows
    assert timeline.warps.closed.all()
    assert timeline.mispaired_count == 0 and timeline.dropped == 0
    assert (raw.headers["count"] <= raw.meta["capacity"]).all()
    assert raw.headers["count"].max() > 0
    assert raw.meta["anchored_sms"] == device.info.sm_count
    assert timeline.clock.method.startswith("fit"), timeline.clock.reason
    assert timeline.clock.uncertainty_ns <= timeline.clock.tick_ns
    assert (raw.headers["warps"] == -(-np.prod(launch.block) // 32)).all()
    slices, warps = timeline.slices, timeline.warps
    assert (slices.end_ns >= slices.start_ns).all()
    slack = timeline.clock.uncertainty_ns + 1
    mine = slices.kind < 2  # an async stage may end in another warp
    assert (slices.start_ns[mine] >= warps.start_ns[slices.row[mine]] - slack).all()
    assert (slices.end_ns[mine] <= warps.end_ns[slices.row[mine]] + slack).all()
    overhead = raw.meta["overhead"]
    assert ("recording" in overhead) == (chosen.count < chosen.of)  # else all CTAs record as it is
    for cost in (overhead, overhead.get("recording", overhead)):
        assert cost["ci"][0] <= cost["ratio"] <= cost["ci"][1]
        assert 0.9 < cost["ratio"] < 1.5


@pytest.mark.parametrize(("name", "space"), BUNDLED)
def test_stages_come_in_order(backends: Any, name: str, space: str) -> None:
    """Every warp that stores has begun something else before, and stores last (a reduction's stores a partial
    sum and waits then)."""
    workload, case, backend = backends[name]
    everything = dataclasses.replace(BRIEF, ctas=None)  # of a reduction only the last block stores
    timeline = decoded(backend.trace(candidate_of(workload, space, case), case, everything))
    names = list(timeline.stages)
    slices = timeline.slices
    stored = slices.stage == names.index("store")
    assert stored.any()
    for row in np.unique(slices.row[stored]):
        mine = slices.row == row
        first_store = slices.start_ns[mine & stored].min()
        others = mine & ~stored & (slices.kind == 0)
        assert slices.start_ns[others].min() < first_store
        if name != "reduction":
            assert slices.start_ns[others].max() <= slices.end_ns[mine & stored].max()


@pytest.mark.parametrize("capacity", [0, 1, 7])
@pytest.mark.parametrize(("name", "space"), BUNDLED)
def test_a_small_buffer_drops_events_and_counts_them(
    backends: Any, name: str, space: str, capacity: int
) -> None:
    workload, case, backend = backends[name]
    candidate = candidate_of(workload, space, case)
    raw = backend.trace(candidate, case, dataclasses.replace(BRIEF, capacity=capacity))
    timeline = decoded(raw)
    count = raw.headers["count"].astype(np.int64)
    assert raw.records.shape == (len(count), capacity)
    assert timeline.dropped == np.maximum(count - capacity, 0).sum()
    assert timeline.dropped > 0 or capacity == 7
    exact = backend.trace(candidate, case, BRIEF).headers["count"].astype(np.int64)
    # Which block arrives last, and so has more to do, is chance.
    assert np.median(count) == np.median(exact)


@pytest.mark.parametrize(
    ("ctas", "mask"), [(1, None), (5, None), (None, None), (5, 0b1), (3, 0b10), (None, 0b11)]
)
def test_only_what_is_selected_records(backends: Any, ctas: int | None, mask: int | None) -> None:
    workload, case, backend = backends["softmax"]
    candidate = workload.candidate("classic", {"block_size": 128, "reg_cap": 0})
    options = TraceOptions(ctas=ctas, warp_mask=mask, overhead=False)
    chosen = select(workload.launches(candidate, case)[0], options)
    raw = backend.trace(candidate, case, options)
    found = set(zip(raw.headers["cta"].tolist(), raw.headers["warp"].tolist(), strict=True))
    warps = [w for w in range(4) if chosen.warp_mask >> w & 1]
    where = raw.meta["ctas"]
    expected = {(where["first"] + i * where["stride"], w) for i in range(chosen.count) for w in warps}
    assert found == expected and len(raw.headers) == len(expected)


@pytest.mark.parametrize(("name", "space"), BUNDLED)
def test_ctas_that_are_not_selected_run_the_untraced_code(backends: Any, name: str, space: str) -> None:
    workload, case, backend = backends[name]
    options = dataclasses.replace(SPLIT, ctas=2)
    raw = backend.trace(candidate_of(workload, space, case), case, options)
    where = raw.meta["ctas"]
    assert set(raw.headers["cta"].tolist()) == {where["first"], where["first"] + where["stride"]}
    assert where["traced"] == 2
    assert not [text for text in raw.meta["warnings"] if "run the stage markers too" in text]
    used = raw.meta["resources"]
    assert used["traced"]["code_bytes"] > 1.5 * used["untraced"]["code_bytes"]
    assert used["traced"]["occupancy"] == used["untraced"]["occupancy"]


def test_only_selected_ctas_run_what_only_the_traced_code_has(device: Device, tmp_path: Path) -> None:
    """It spoils the output of every other CTA: with the untraced code in these nothing is wrong."""
    spoil = "if ((blockIdx.x - wd_trace.cta_first) * wd_trace.cta_inverse >= wd_trace.cta_count) n = 0;"
    body = "WD_PUSH(busy); WD_POP(busy);\n" + TRACED.format(spoil)
    assert len(Own(device, tmp_path, body).trace(SPLIT).headers) == 16 * 4
    with pytest.raises(VerificationError, match="traced kernel is wrong"):
        Own(device, tmp_path, body).trace(dataclasses.replace(BRIEF, split=False))


def test_what_both_bodies_share(device: Device, tmp_path: Path) -> None:
    """Constants, shared memory and a counter of the module, which CTAs of both kinds wait for."""
    head = HEAD.replace(
        'extern "C"',
        """__constant__ float factors[4] = {1.0f, 2.0f, 4.0f, 8.0f};
__device__ unsigned seen;
__device__ __noinline__ float scaled(float x, int by) { return factors[by] * x; }
extern "C\"""",
    )
    body = """
    __shared__ float tile[128];
    __shared__ unsigned last;
    WD_PUSH(busy);
    tile[127 - threadIdx.x] = i < n ? scaled(x[i], 1) : 0.0f;
    if (threadIdx.x == 0) last = atomicAdd(&seen, 1u) % gridDim.x == gridDim.x - 1;
    __syncthreads();
    WD_POP(busy);
    if (last && threadIdx.x == 0) WD_VALUE(ns, seen % gridDim.x);
    if (i < n) y[i] = tile[127 - threadIdx.x];
    """
    tail = "\n    WD_TRACE_END();\n}\n"
    raw = Own(device, tmp_path, body, head=head, tail=tail).trace(SPLIT)
    assert raw.meta["warnings"] == [] and decoded(raw).mispaired_count == 0


def test_the_limit_is_told_before_memory_is_taken(backends: Any) -> None:
    workload, case, backend = backends["gemm"]
    candidate = candidate_of(workload, "classic", case)
    with pytest.raises(UsageError, match="over the limit of 1 MB"):
        backend.trace(candidate, case, dataclasses.replace(BRIEF, capacity=100_000, limit_bytes=1 << 20))


@pytest.mark.parametrize("cache", [CacheMode.COLD, CacheMode.HOT])
def test_the_cache_is_as_asked(backends: Any, cache: CacheMode) -> None:
    workload, case, backend = backends["softmax"]
    candidate = candidate_of(workload, "classic", case)
    raw = backend.trace(candidate, case, dataclasses.replace(BRIEF, cache=cache))
    assert raw.meta["cache"] == cache
    assert decoded(raw).mispaired_count == 0


def test_durations_agree_with_globaltimer(device: Device, tmp_path: Path) -> None:
    """A stage is no shorter than what the timer read inside of it, no longer than outside, but for a step."""
    body = """
    unsigned long long before, start, now, after;
    for (int k = 0; k < 32; ++k) {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(before)::"memory");
        WD_PUSH(busy, k);
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start)::"memory");
        do {
            asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
        } while (now - start < 500u << k % 4);
        WD_POP(busy);
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(after)::"memory");
        WD_VALUE(ns, unsigned(now - start));
        WD_VALUE(ns, unsigned(after - before));
    }
    """
    timeline = decoded(Own(device, tmp_path, body).trace())
    order = np.lexsort((timeline.marks.time_ns, timeline.marks.row))
    by_start = np.lexsort((timeline.slices.start_ns, timeline.slices.row))
    lasted = (timeline.slices.end_ns - timeline.slices.start_ns)[by_start]
    inner, outer = timeline.marks.value[order].reshape(-1, 2).T
    assert len(lasted) == len(inner) == 16 * 4 * 32
    assert np.maximum(inner - lasted, lasted - outer).max() <= timeline.clock.tick_ns


SPINS = """
    WD_PUSH(busy);
    const long long start = clock64();
    while (clock64() - start < 60000) {
    }
    WD_POP(busy);
"""


def test_clocks_are_read_before_a_launch_with_room_and_beside_it(device: Device, tmp_path: Path) -> None:
    """By a further block on each SM, which the launch doesn't wait for, although it needs much shared memory:
    four of its blocks fill an SM."""
    fills = """
    __shared__ unsigned char filled[46 << 10];
    for (int k = threadIdx.x; k < sizeof filled; k += blockDim.x) filled[k] = k;
    __syncthreads();
    if (n < 0) y[0] = filled[-n];
    """
    raw = Own(device, tmp_path, fills + SPINS).trace()
    begin, end = raw.headers["time_begin"].min(), raw.headers["time_end"].max()
    assert end - begin < 200_000
    for part in ((begin - np.uint64(2500), begin), (begin, end)):
        inside = raw.anchors[(raw.anchors["time"] > part[0]) & (raw.anchors["time"] < part[1])]
        assert len(np.unique(inside["sm"])) == device.info.sm_count
    clock = decoded(raw).clock
    assert clock.method == "fit, piecewise" and clock.uncertainty_ns <= 8


def test_a_wrong_kernel_has_no_trace(device: Device, tmp_path: Path) -> None:
    body = TRACED.format("    if (i == 77 && n > 2000) { y[i] = 7; WD_TRACE_END(); return; }")
    with pytest.raises(VerificationError, match="traced kernel is wrong"):
        Own(device, tmp_path, "WD_PUSH(busy); WD_POP(busy);\n" + body).trace()


def test_a_source_without_markers_says_how_to_add_them(device: Device, tmp_path: Path) -> None:
    head = HEAD.split("\n", 2)[2].replace("WD_TRACE_BEGIN();", "").replace(" WD_TRACE_PARAM", "")
    with pytest.raises(CompileError, match="WD_STAGES"):
        Own(device, tmp_path, "", head=head, tail=TAIL.replace("WD_TRACE_END();", "")).trace()


@pytest.mark.parametrize(
    ("write", "said"),
    [
        ("reinterpret_cast<unsigned*>(d.rows)[-1] = 1;", "before the trace's rows"),
        (
            "reinterpret_cast<unsigned*>(d.rows)[(64 + 8 * d.capacity) / 4] = 1;",
            "goes beyond its row",
        ),
    ],
)
def test_a_trace_that_writes_elsewhere_is_refused(
    device: Device, tmp_path: Path, write: str, said: str
) -> None:
    body = "WD_PUSH(busy); WD_POP(busy);\n" + TRACED.format(DESCRIPTOR.format(write))
    with pytest.raises(WarpdeckError, match=said):
        Own(device, tmp_path, body).trace()


def test_a_warp_that_never_ends_is_told(device: Device, tmp_path: Path) -> None:
    body = "WD_PUSH(busy);\n" + TRACED.format("if (threadIdx.x < 32) { if (i < n) y[i] = 2 * x[i]; return; }")
    raw = Own(device, tmp_path, body + "\nWD_POP(busy);").trace()
    timeline = decoded(raw)
    open_ones = raw.headers["magic"] == layout.MAGIC_OPEN
    assert open_ones.sum() == 16 and (raw.headers["warp"][open_ones] == 0).all()
    assert (~timeline.warps.closed).sum() == 16


def test_tracing_leaves_the_device_as_it_was(backends: Any) -> None:
    """A second trace of the same finds the same, after others have run."""
    workload, case, backend = backends["gemm"]
    candidate = candidate_of(workload, "classic", case)
    first = backend.trace(candidate, case, BRIEF)
    backend.trace(candidate, case, dataclasses.replace(BRIEF, capacity=1))
    second = backend.trace(candidate, case, BRIEF)
    assert np.array_equal(first.headers["count"], second.headers["count"])
    words = [raw.records["word"] for raw in (first, second)]
    ends = words[0] >> 30 == layout.KIND_END  # an end's payload is a time
    assert np.array_equal(*(np.where(ends, w & ~np.uint32(layout.PAYLOAD_MASK), w) for w in words))


def test_a_wait_at_a_barrier_is_measured(device: Device, tmp_path: Path) -> None:
    """Three warps wait for the fourth. The hardware lets a warp run on behind a barrier for some cycles."""
    body = """
    if (threadIdx.x < 32) for (const long long begin = clock64(); clock64() - begin < 20000;) {}
    WD_PUSH(busy);
    __syncthreads();
    WD_POP(busy);
    """
    timeline = decoded(Own(device, tmp_path, body).trace(BRIEF))
    lasted = timeline.slices.end_ns - timeline.slices.start_ns
    late = timeline.warps.warp[timeline.slices.row] == 0
    assert late.sum() * 4 == len(late)
    assert lasted[~late].min() > 8000 and lasted[late].max() < 1000


def test_a_wait_at_a_barrier_is_measured_in_numba(backends: Any) -> None:
    """All warps but the first wait until its thread 0 has added to memory, which takes over 300 ns."""
    workload, case, backend = backends["reduction"]
    timeline = decoded(backend.trace(candidate_of(workload, "full", case), case, SPLIT))
    waits = timeline.slices.stage == list(timeline.stages).index("wait")
    others = timeline.warps.warp[timeline.slices.row] != 0
    lasted = (timeline.slices.end_ns - timeline.slices.start_ns)[waits & others]
    assert np.median(lasted) > 300
