"""A program of one's own with `trace_host.h`: what it hands its kernel, and the file that it leaves.

It is built with nvcc and linked to a stand-in for the CUDA runtime, whose launch writes what a GPU would.
"""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import numpy as np
import pytest
import trace_synthetic
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from warpdeck.core.errors import WarpdeckError
from warpdeck.core.toolchain.sources import TRACE_INCLUDE
from warpdeck.core.tracing import convert, document, read
from warpdeck.telemetry.trace import layout, store
from warpdeck.telemetry.trace.decode import decode
from warpdeck.telemetry.trace.errors import TraceError
from warpdeck.telemetry.trace.timeline import RawTrace

PROGRAM = r"""
#include <warpdeck/trace_host.h>
#include <cstdio>
#include <cstdlib>
#include <exception>
WD_STAGES(load, compute)
__global__ void kernel(const float *x, float *y, int n WD_TRACE_PARAM) {
    WD_TRACE_BEGIN();
    WD_PUSH(load);
    float v = x[threadIdx.x];
    WD_POP(load);
    WD_PUSH(compute, n);
    y[threadIdx.x] = v * v;
    WD_POP(compute);
    WD_TRACE_END();
}
int main(int, char **given) try {
    const dim3 grid(std::atoi(given[1]), 2), block(std::atoi(given[2]), 2);
    WD_TRACE_OPEN(trace, grid, block, std::atoi(given[3]), std::atoi(given[4]));
    kernel<<<grid, block>>>(nullptr, nullptr, 7 WD_TRACE_PASS(trace));
    WD_TRACE_SAVE(trace, std::string(given[5]));
    return 0;
} catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
}
"""

# Memory is the host's. A launch's last argument is the descriptor; each CTA that it selects leaves two ranges
# a warp.
RUNTIME = r"""
#include <cstdlib>
#include <cstring>
struct dim3 { unsigned x, y, z; };
static unsigned long long clock_at(unsigned long long time) { return 5000 + (time - 900000) * 198 / 100; }
static void read_clocks(unsigned blocks, char *out) {
    static unsigned long long time = 900000;
    for (unsigned block = 0; block < blocks; ++block)
        for (unsigned i = 0; i < 64; ++i, out += 24) {  // two readings around each step
            const unsigned long long now = time + 1024 * (i / 2) + 32 * (i % 2);
            const unsigned long long clock = clock_at(now) - (i % 2 ? 0 : 8);
            const unsigned where[] = {block, 8};
            std::memcpy(out, &now, 8);
            std::memcpy(out + 8, &clock, 8);
            std::memcpy(out + 16, where, 8);
        }
    time += 200000;
}
static void launch(dim3 grid, dim3 block, void **arguments) {
    if (grid.y == 1) return read_clocks(grid.x, *(char **)arguments[0]);
    struct { unsigned long long rows; unsigned capacity, row_bytes, first, inverse, count, mask; } d;
    std::memcpy(&d, arguments[3], 32);
    const unsigned warps = (block.x * block.y * block.z + 31) / 32;
    for (unsigned cta = 0; cta < grid.x * grid.y * grid.z; ++cta) {
        const unsigned index = (cta - d.first) * d.inverse;
        if (index >= d.count) continue;
        for (unsigned warp = 0; warp < warps; ++warp) {
            char *row = (char *)d.rows + (size_t)(index * warps + warp) * d.row_bytes;
            if ((size_t)row % 16 || !(d.mask >> warp & 1)) std::abort();
            const unsigned late = cta + 3 * warp;  // steps of the timer
            const unsigned long long time = 1000000 + 32 * late;
            const unsigned clock = clock_at(time);
            const unsigned long long times[] = {time, clock, time + 512, clock + 1014};
            const unsigned head[] = {0x57445401u, cta % 3, cta, warp}, tail[] = {4, 8, 8, warps};
            const unsigned records[] = {clock + 100, 1u << 20,
                                        clock + 200, 1u << 30 | 1u << 20 | unsigned(time + 101) >> 5,
                                        clock + 300, 2u << 20 | 7,
                                        clock + 900, 1u << 30 | 2u << 20 | unsigned(time + 454) >> 5};
            std::memcpy(row, head, 16);
            std::memcpy(row + 16, times, 32);
            std::memcpy(row + 48, tail, 16);
            std::memcpy(row + 64, records, 8 * (d.capacity < 4 ? d.capacity : 4));
        }
    }
}
static dim3 grid_, block_;
extern "C" {
int cudaMalloc(void **p, size_t n) { *p = std::aligned_alloc(256, (n + 255) / 256 * 256); return *p ? 0 : 2; }
int cudaFree(void *p) { std::free(p); return 0; }
int cudaMemset(void *p, int v, size_t n) { std::memset(p, v, n); return 0; }
int cudaMemcpy(void *to, const void *from, size_t n, int) { std::memcpy(to, from, n); return 0; }
int cudaMemcpyFromSymbol(void *to, const void *, size_t n, size_t, int) {
    std::memcpy(to, "load, compute", n);
    return 0;
}
int cudaGetDeviceProperties(void *about, int) { std::strcpy((char *)about, "NVIDIA Imitation"); return 0; }
int cudaGetDeviceProperties_v2(void *about, int device) { return cudaGetDeviceProperties(about, device); }
int cudaGetDevice(int *device) { *device = 0; return 0; }
int cudaDeviceGetAttribute(int *value, int which, int) { *value = which == 13 ? 1980000 : 3; return 0; }
int cudaFuncSetAttribute(const void *, int, int) { return 0; }
int cudaDeviceSynchronize() { return std::getenv("FAULT") ? 700 : 0; }
const char *cudaGetErrorString(int) { return "an illegal memory access was encountered"; }
int cudaLaunchKernel(const void *, dim3 g, dim3 b, void **a, size_t, void *) { launch(g, b, a); return 0; }
int __cudaLaunchKernel(void *, dim3 g, dim3 b, void **a, size_t, void *) { launch(g, b, a); return 0; }
int __cudaGetKernel(void **kernel, const void *) { *kernel = kernel; return 0; }
char __cudaInitModule(void **) { return 1; }
void **__cudaRegisterFatBinary(void *) { static void *handle; return &handle; }
void __cudaRegisterFatBinaryEnd(void **) {}
void __cudaUnregisterFatBinary(void **) {}
void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, void *, void *,
                            int *) {}
void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int) {}
unsigned __cudaPushCallConfiguration(dim3 g, dim3 b, size_t, void *) { grid_ = g; block_ = b; return 0; }
int __cudaPopCallConfiguration(dim3 *g, dim3 *b, size_t *, void *) { *g = grid_; *b = block_; return 0; }
}
"""


def nvcc(folder: Path, *options: str) -> None:
    program = shutil.which("nvcc")
    if program is None:
        pytest.skip("no nvcc here")
    line = [
        program,
        "-std=c++17",
        "-arch=sm_90",
        f"-I{TRACE_INCLUDE}",
        "-Xcompiler",
        "-Wall,-Wextra",
        *options,
    ]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "warning" not in done.stderr, done.stderr


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    (folder / "own.cu").write_text(PROGRAM)
    (folder / "runtime.cpp").write_text(RUNTIME)
    nvcc(folder, "-DWARPDECK_TRACE", "-c", "own.cu", "-o", "own.o")
    nvcc(folder, "-DWARPDECK_TRACE", "--cudart", "none", "own.o", "runtime.cpp", "-o", "own")
    return folder / "own"


@pytest.mark.parametrize(
    ("grid", "block", "capacity", "ctas"),
    [(1, 16, 1024, 16), (35, 128, 8, 16), (64, 100, 3, 5), (9, 512, 0, 100), (3, 16, 5, 1)],
)
def test_the_file_holds_what_the_selected_ctas_recorded(
    program: Path, tmp_path: Path, grid: int, block: int, capacity: int, ctas: int
) -> None:
    path = tmp_path / "k.wdtrace"
    subprocess.run([program, *map(str, (grid, block, capacity, ctas)), path], check=True)
    timeline = read(path)
    warps = -(-2 * block // 32)
    traced = min(ctas, 2 * grid)
    assert timeline.stages == ("load", "compute")
    assert timeline.warps.cta.size == traced * warps
    chosen = np.unique(timeline.warps.cta)
    assert chosen.size == traced and chosen[-1] < 2 * grid
    assert set(np.diff(chosen)) <= {max(1, 2 * grid // traced - (2 * grid // traced % 2 == 0))}
    assert timeline.dropped == max(0, 4 - capacity) * traced * warps
    if capacity >= 4:
        lasts = np.unique(np.round(timeline.slices.end_ns - timeline.slices.start_ns, 1))
        np.testing.assert_allclose(lasts, [100 / 1.98, 600 / 1.98], atol=2.0)
        assert timeline.slices.payload.max() == 7 and timeline.mispaired_count == 0
    assert timeline.clock.anchors > 2 * 64 * 3 and timeline.clock.uncertainty_ns < 40
    assert document(timeline)["device"]["label"] == "NVIDIA Imitation"
    assert document(timeline)["ctas"] == {"traced": traced, "of": 2 * grid}
    assert timeline.meta["grid"] == [grid, 2, 1] and timeline.meta["block"] == [block, 2, 1]


def test_what_goes_wrong_is_told(program: Path, tmp_path: Path) -> None:
    def fails(*given: str, **environment: str) -> str:
        done = subprocess.run([program, *given], capture_output=True, text=True, env=environment)
        assert done.returncode == 3
        return done.stderr

    path, absent = str(tmp_path / "k.wdtrace"), str(tmp_path / "none" / "k.wdtrace")
    assert fails("0", "32", "4", "4", path) == "trace: a launch or a size that can't be traced\n"
    assert fails("1", "32", "4", "4", absent) == f"{absent}: can't be written\n"
    assert (
        fails("1", "32", "4", "4", path, FAULT="1")
        == "trace: clocks: an illegal memory access was encountered\n"
    )
    assert not Path(path).exists()


@pytest.mark.parametrize("separate", [[], ["-rdc=true"]])
def test_two_files_of_a_program_have_their_own_stages(tmp_path: Path, separate: list[str]) -> None:
    """They link, by the host's linker and, with device code of its own, by the device's."""
    (tmp_path / "own.cu").write_text(PROGRAM)
    other = PROGRAM.replace("kernel", "other").replace("compute", "arithmetic").replace("main(", "more(")
    (tmp_path / "other.cu").write_text(other)
    for name in ("own", "other"):
        nvcc(tmp_path, "-DWARPDECK_TRACE", *separate, "-c", f"{name}.cu", "-o", f"{name}.o")
    nvcc(tmp_path, *separate, "own.o", "other.o", "-o", "both")


def test_off_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "own.cu").write_text(PROGRAM)
    nvcc(tmp_path, "-c", "own.cu", "-o", "own.o")
    names = subprocess.run(["nm", "-C", "own.o"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "wd_" not in names.stdout and "cudaMalloc" not in names.stdout


# -- the file's own form ----------------------------------------------------------------------------------


def dumped(raw: RawTrace, spare: int = 0) -> bytes:
    """A trace as trace_host.h writes it: rows one after the other, `spare` bytes between them."""
    capacity = raw.records.shape[1]
    rows = np.zeros((raw.headers.size, layout.HEADER_BYTES + 8 * capacity + spare), np.uint8)
    rows[:, : layout.HEADER_BYTES] = raw.headers.view(np.uint8).reshape(raw.headers.size, -1)
    records = np.ascontiguousarray(raw.records).view(np.uint8).reshape(raw.headers.size, -1)
    rows[:, layout.HEADER_BYTES : layout.HEADER_BYTES + 8 * capacity] = records
    names = ",".join(f'"{stage}"' for stage in raw.stages)
    sizes = (
        f'"rows":{len(rows)},"row_bytes":{rows.shape[1]},"capacity":{capacity},"anchors":{raw.anchors.size}'
    )
    head = f'{{{sizes},"stages":[{names}],"meta":{{}}}}'.encode()
    body = head + rows.tobytes() + raw.anchors.tobytes()
    return struct.pack("<8sIII", store.MAGIC, 2, zlib.crc32(body), len(head)) + body


@given(st.sampled_from(["nested", "mixed"]), st.sampled_from([None, 0, 5]), st.sampled_from([0, 8, 64]))
@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rows_come_back(tmp_path: Path, shape: str, capacity: int | None, spare: int) -> None:
    raw = trace_synthetic.loops(3, 2, 6, shape, capacity=capacity)
    path = tmp_path / "t.wdtrace"
    path.write_bytes(dumped(raw, spare))
    back = store.load(path)
    assert (back.headers == raw.headers).all() and (back.records == raw.records).all()
    assert (back.anchors == raw.anchors).all()
    assert decode(back).events == decode(raw).events
    store.save(back, path)  # and in the smaller form
    assert decode(store.load(path)).dropped == decode(raw).dropped


@given(st.data())
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_rows_give_one_error(tmp_path: Path, data: st.DataObject) -> None:
    whole = dumped(trace_synthetic.loops(2, 2, 3, "mixed"))
    at = data.draw(st.integers(0, len(whole) - 1))
    cut = data.draw(st.booleans())
    path = tmp_path / "t.wdtrace"
    path.write_bytes(whole[:at] if cut else whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
    with pytest.raises(TraceError) as found:
        store.load(path)
    assert "\n" not in str(found.value)


@given(st.data())
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nonsense_with_a_right_checksum_is_refused_or_shown(tmp_path: Path, data: st.DataObject) -> None:
    """What another program, or memory that something else overwrote, may hold."""
    whole = dumped(trace_synthetic.loops(2, 2, 3, "mixed"))
    start = 20 + struct.unpack_from("<I", whole, 16)[0]
    body = np.frombuffer(whole[20:], np.uint8).copy()
    words = body[start - 20 :][: (body.size - start + 20) // 4 * 4].view("<u4")
    word = st.one_of(st.integers(0, 2**32 - 1), st.sampled_from([0, 1, 2**31, 2**32 - 1]))
    for at, value in data.draw(st.lists(st.tuples(st.integers(0, words.size - 1), word), max_size=8)):
        words[at] = value
    for at, bit in data.draw(
        st.lists(st.tuples(st.integers(0, words.size - 1), st.integers(0, 31)), max_size=8)
    ):
        words[at] ^= np.uint32(1 << bit)
    path = tmp_path / "t.wdtrace"
    path.write_bytes(
        whole[:12] + struct.pack("<I", zlib.crc32(body.tobytes())) + whole[16:20] + body.tobytes()
    )
    try:
        timeline = read(path)
    except WarpdeckError as error:
        assert "\n" not in str(error)
        return
    json.dumps(document(timeline), allow_nan=False)
    for suffix in (".pftrace", ".json", ".csv", ".wdtrace"):
        convert(path, timeline, tmp_path / f"o{suffix}")
        assert read(tmp_path / f"o{suffix}").events == timeline.events


@pytest.mark.parametrize(
    "sizes",
    [(2, 64, 1, 0), (2, 72, 1, 0), (1 << 39, 1 << 39, 0, 0), (0, 64, 0, 5), (2, 80, 2, 1), (0, 1, 0, 0)],
)
def test_sizes_that_the_file_doesnt_have_are_refused(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    head = b'{"rows":%d,"row_bytes":%d,"capacity":%d,"anchors":%d,"stages":["a"],"meta":{}}' % sizes
    body = head + bytes(160)
    path = tmp_path / "t.wdtrace"
    path.write_bytes(struct.pack("<8sIII", store.MAGIC, 2, zlib.crc32(body), len(head)) + body)
    with pytest.raises(TraceError, match="rows and readings"):
        store.load(path)


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "1e999"])
def test_numbers_that_are_none_are_refused(tmp_path: Path, value: str) -> None:
    head = (
        f'{{"rows":0,"row_bytes":64,"capacity":0,"anchors":0,"stages":["a"],"meta":{{"x":{value}}}}}'.encode()
    )
    path = tmp_path / "t.wdtrace"
    path.write_bytes(struct.pack("<8sIII", store.MAGIC, 2, zlib.crc32(head), len(head)) + head)
    with pytest.raises(TraceError, match="JSON head"):
        store.load(path)
