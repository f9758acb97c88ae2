"""The trace header on a GPU: every record of a small kernel, exactly, with buffers large and too small."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from warpdeck.telemetry.trace import layout
from warpdeck.telemetry.trace.layout import (
    KIND_BEGIN,
    KIND_END,
    KIND_EXTENDED,
    KIND_MARK,
    SUB_DONE,
    SUB_ISSUE,
    SUB_RAW,
    SUB_SHIFT,
    SUB_START,
    SUB_STOP,
    SUB_VALUE_F32,
    SUB_VALUE_I32,
    SUB_VALUE_U32,
)

pytestmark = pytest.mark.gpu
driver: Any = pytest.importorskip("cuda.bindings.driver", reason="needs the cuda extra")

# Warp 0 and the even ones after 1 run the loop, warp 1 returns early, warp 3 never ends its trace.
SOURCE = """\
#include <warpdeck/trace.cuh>
WD_STAGES(load, wait, compute, store)
__device__ __forceinline__ float inner(float x, int t WD_STATE_PARAM) {
    WD_RANGE(wait, t);
    return x * 1.5f;
}
extern "C" __global__ void k(float *out, int rounds WD_TRACE_PARAM) {
    const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const int cta = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const int warp = thread / 32;
    WD_TRACE_BEGIN();
    if (warp == 1) {
        WD_MARK(store, 11);
        WD_TRACE_END();
        return;
    }
    float x = thread;
    for (int t = 0; t < rounds; ++t) {
        WD_PUSH(load, t);
        WD_START(store, t);
        WD_ISSUE(load, t);
        WD_POP(load);
        WD_PUSH(compute);
        x = inner(x, t WD_STATE_ARG) + 1.0f;
        WD_PIN(x);
        WD_POP(compute);
        WD_DONE(load, t);
        WD_STOP(store, t);
        WD_VALUE(compute, x);
        WD_VALUE(load, -t);
        WD_VALUE(wait, 3000000000u + t);
    }
    out[cta * blockDim.x * blockDim.y * blockDim.z + thread] = x;
    if (warp == 3) return;
    {
        WD_RANGE(store);
        WD_TRACE_END();
    }
}
"""
GRID, BLOCK = (3, 2, 4), (16, 5, 2)  # 24 CTAs of 5 warps, whose lanes lie across x and y
CTAS, WARPS, THREADS = 24, 5, 160
ROUNDS = 6
GUARD = 512  # bytes
LOAD, WAIT, COMPUTE, STORE = 1, 2, 3, 4


def check(result: tuple[Any, ...]) -> Any:
    assert int(result[0]) == 0, f"{driver.cuGetErrorName(result[0])[1].decode()}"
    return result[1] if len(result) == 2 else result[1:]


@dataclass
class Gpu:
    """The kernel, loaded in the device's primary context."""

    traced: Any
    plain: Any

    def run(self, descriptor: dict[str, int] | None, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """One launch: headers [rows], records [rows, capacity], the kernel's output; guards are checked.

        `descriptor` lacks the rows and has the stride; None: all of it is 0.
        """
        capacity = descriptor["capacity"] if descriptor else 0
        row = -(-(layout.HEADER_BYTES + layout.RECORD_BYTES * capacity) // 16) * 16
        size = rows * row
        out = check(driver.cuMemAlloc(4 * CTAS * THREADS))
        trace = check(driver.cuMemAlloc(size + 2 * GUARD))
        try:
            check(driver.cuMemsetD8(out, 0, 4 * CTAS * THREADS))
            check(driver.cuMemsetD8(trace, 0xA5, size + 2 * GUARD))
            check(driver.cuMemsetD8(int(trace) + GUARD, 0, size))
            values = np.zeros(1, layout.DESCRIPTOR)
            if descriptor:
                given = {**descriptor, "rows": int(trace) + GUARD, "row_bytes": row}
                given["cta_inverse"] = layout.stride_inverse(given.pop("cta_stride"))
                for name, value in given.items():
                    values[name] = value
            words = (ctypes.c_uint64 * 4)(*values.view("<u8").tolist())
            given = [ctypes.c_void_p(int(out)), ctypes.c_int(ROUNDS), words]
            self._launch(self.traced, given)
            raw = np.zeros(size + 2 * GUARD, np.uint8)
            check(driver.cuMemcpyDtoH(raw.ctypes.data, trace, raw.nbytes))
            result = np.zeros(CTAS * THREADS, np.float32)
            check(driver.cuMemcpyDtoH(result.ctypes.data, out, result.nbytes))
        finally:
            for memory in (out, trace):
                driver.cuMemFree(memory)
        assert np.all(raw[:GUARD] == 0xA5) and np.all(raw[size + GUARD :] == 0xA5)
        inside = raw[GUARD : size + GUARD].reshape(rows, row)
        headers = np.ascontiguousarray(inside[:, : layout.HEADER_BYTES]).view(layout.HEADER)[:, 0]
        end = layout.HEADER_BYTES + layout.RECORD_BYTES * capacity
        assert not inside[:, end:].any()
        records = np.ascontiguousarray(inside[:, layout.HEADER_BYTES : end]).view(layout.RECORD)
        return headers, records.reshape(rows, capacity), result

    def untraced(self) -> np.ndarray:
        """The output of the kernel without markers."""
        out = check(driver.cuMemAlloc(4 * CTAS * THREADS))
        try:
            check(driver.cuMemsetD8(out, 0, 4 * CTAS * THREADS))
            self._launch(self.plain, [ctypes.c_void_p(int(out)), ctypes.c_int(ROUNDS)])
            result = np.zeros(CTAS * THREADS, np.float32)
            check(driver.cuMemcpyDtoH(result.ctypes.data, out, result.nbytes))
        finally:
            driver.cuMemFree(out)
        return result

    @staticmethod
    def _launch(function: Any, values: list[Any]) -> None:
        addresses = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        check(driver.cuLaunchKernel(function, *GRID, *BLOCK, 0, 0, ctypes.addressof(addresses), 0))
        check(driver.cuCtxSynchronize())


@pytest.fixture(scope="module")
def gpu() -> Iterator[Gpu]:
    from warpdeck.core.toolchain import CompileRequest
    from warpdeck.core.toolchain.build import build

    check(driver.cuInit(0))
    device = check(driver.cuDeviceGet(0))
    numbers = (
        driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
        driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
    )
    major, minor = (int(check(driver.cuDeviceGetAttribute(number, device))) for number in numbers)
    context = check(driver.cuDevicePrimaryCtxRetain(device))
    check(driver.cuCtxPushCurrent(context))
    functions = []
    for trace in (True, False):
        made = build(CompileRequest("cuda", "k.cu", ("k",), (major, minor), text=SOURCE, trace=trace))
        module = check(driver.cuModuleLoadData(made.cubin))
        functions.append(check(driver.cuModuleGetFunction(module, b"k")))
    yield Gpu(*functions)
    driver.cuCtxPopCurrent()
    driver.cuDevicePrimaryCtxRelease(device)


def extended(name: int, sub: int, argument: int = 0) -> int:
    return layout.word(KIND_EXTENDED, name, sub << SUB_SHIFT | argument)


def expected(warp: int, first: float) -> list[tuple[int | None, int]]:
    """A warp's records: (clock where it holds a value's bits, word). `first`: lane 0's thread number."""
    if warp == 1:
        return [(None, layout.word(KIND_MARK, STORE, 11))]
    records: list[tuple[int | None, int]] = []
    raw = extended(0, SUB_RAW)
    x = np.float32(first)
    for t in range(ROUNDS):
        x = np.float32(np.float32(x * np.float32(1.5)) + np.float32(1))
        records += [
            (None, layout.word(KIND_BEGIN, LOAD, t)),
            (None, extended(STORE, SUB_START, t)),
            (None, extended(LOAD, SUB_ISSUE, t)),
            (None, layout.word(KIND_END, LOAD)),
            (None, layout.word(KIND_BEGIN, COMPUTE)),
            (None, layout.word(KIND_BEGIN, WAIT, t)),
            (None, layout.word(KIND_END, WAIT)),
            (None, layout.word(KIND_END, COMPUTE)),
            (None, extended(LOAD, SUB_DONE, t)),
            (None, extended(STORE, SUB_STOP, t)),
            (None, extended(COMPUTE, SUB_VALUE_F32)),
            (int(x.view(np.uint32)), raw),
            (None, extended(LOAD, SUB_VALUE_I32)),
            ((-t) & 0xFFFFFFFF, raw),
            (None, extended(WAIT, SUB_VALUE_U32)),
            (3_000_000_000 + t, raw),
        ]
    if warp != 3:
        records.append((None, layout.word(KIND_BEGIN, STORE)))  # its end comes after the trace's
    return records


LONGEST = 16 * ROUNDS + 1
ALL = {"cta_first": 0, "cta_stride": 1, "cta_count": CTAS, "warp_mask": 0b11111}
SOME = {"cta_first": 2, "cta_stride": 5, "cta_count": 4, "warp_mask": 0b11010}  # CTAs 2, 7, 12, 17


@pytest.mark.parametrize("selection", [ALL, SOME], ids=["all", "some"])
@pytest.mark.parametrize("capacity", [0, 1, 7, LONGEST - 1, LONGEST, LONGEST + 15])
def test_every_record(gpu: Gpu, capacity: int, selection: dict[str, int]) -> None:
    warps = [w for w in range(WARPS) if selection["warp_mask"] >> w & 1]
    ctas = [selection["cta_first"] + i * selection["cta_stride"] for i in range(selection["cta_count"])]
    assert max(ctas) < CTAS
    headers, records, out = gpu.run({**selection, "capacity": capacity}, len(ctas) * len(warps))
    assert np.array_equal(out, gpu.untraced())
    for row, (cta, warp) in enumerate((c, w) for c in ctas for w in warps):
        header, wanted = headers[row], expected(warp, 32 * warp)
        assert (header["cta"], header["warp"], header["warps"]) == (cta, warp, WARPS)
        assert header["time_begin"] > 0
        kept = records[row, : min(len(wanted), capacity)]
        is_end = kept["word"] >> 30 == KIND_END
        words = np.where(is_end, kept["word"] & ~np.uint32(layout.PAYLOAD_MASK), kept["word"])
        assert words.tolist() == [w for _, w in wanted[:capacity]]
        timers = (kept["word"][is_end] & layout.PAYLOAD_MASK).astype(np.int64)
        sooner = (timers - (int(header["time_begin"]) >> layout.TIME_SHIFT)) % (1 << layout.TIME_BITS)
        assert np.all(np.diff(sooner) >= 0) and np.all(sooner < (1 << layout.TIME_BITS) // 2)  # 16 ms
        assert warp == 3 or np.all(sooner <= int(header["time_end"] - header["time_begin"]) // 32 + 1)
        for record, (value, _) in zip(kept, wanted, strict=False):
            assert value is None or record["clock"] == value
        if capacity > len(wanted):
            assert not records[row, len(wanted) :].view(np.uint8).any()
        clocks = np.array([int(r["clock"]) for r, (v, _) in zip(kept, wanted, strict=False) if v is None])
        since = (clocks - int(header["clock_begin"])) % 2**32
        assert np.all(np.diff(since) > 0) and np.all(since < 10**8)
        assert header["gap_begin"] < 100_000
        if warp == 3:
            assert header["magic"] == layout.MAGIC_OPEN and header["time_end"] == header["count"] == 0
            continue
        assert header["magic"] == layout.MAGIC_CLOSED
        assert header["count"] == len(wanted)  # dropped: exactly what exceeds the capacity
        assert header["time_end"] >= header["time_begin"] and header["gap_end"] < 100_000
        assert np.all(since < int(header["clock_end"]) - int(header["clock_begin"]))
    assert len(np.unique(headers["sm"])) > 1 or len(ctas) < 4


def test_unselected_rows_stay_untouched(gpu: Gpu) -> None:
    """Rows for CTAs and warps that the selection leaves out, behind those it takes."""
    selection = {
        "cta_first": 17,
        "cta_stride": 3,
        "cta_count": 9,
        "warp_mask": 0b00101,
    }  # CTAs 17, 20 and 23
    headers, records, _ = gpu.run({**selection, "capacity": 5}, 18)
    assert [(h["cta"], h["warp"]) for h in headers[:6]] == [
        (cta, warp) for cta in (17, 20, 23) for warp in (0, 2)
    ]
    assert not headers[6:].view(np.uint8).any() and not records[6:].view(np.uint8).any()


@pytest.mark.parametrize("change", [{"cta_count": 0}, {"warp_mask": 0}, {"cta_first": CTAS}])
def test_nothing_selected(gpu: Gpu, change: dict[str, int]) -> None:
    given = {"cta_first": CTAS - 1, "cta_stride": 1, "cta_count": 1, "warp_mask": 1, "capacity": 3}
    headers, _, _ = gpu.run(given, 4)
    assert headers["cta"].tolist() == [CTAS - 1, 0, 0, 0]
    headers, records, out = gpu.run(given | change, 4)
    assert not headers.view(np.uint8).any() and not records.view(np.uint8).any()
    assert np.array_equal(out, gpu.untraced())


def test_without_a_descriptor_nothing_is_recorded(gpu: Gpu) -> None:
    _, _, out = gpu.run(None, 4)
    assert np.array_equal(out, gpu.untraced())
