"""Reading cubins, and telling whether two hold the same machine code."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("cuda.bindings.nvrtc", reason="needs the cuda extra")

from warpdeck.core.toolchain.build import build
from warpdeck.core.toolchain.compiled import Compiled, CompileRequest
from warpdeck.core.toolchain.cubin import Cubin, spill_bytes

SCALE = """
extern "C" __global__ void scale(float *y, const float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * FACTOR;
}
"""
SPILLS = """
extern "C" __global__ void BOUNDS crowd(float *y, const float *x, int n) {
    float r[96];
    #pragma unroll
    for (int j = 0; j < 96; ++j) r[j] = x[threadIdx.x + j * n];
    for (int k = 0; k < n; ++k) {
        #pragma unroll
        for (int j = 0; j < 96; ++j) r[j] = r[j] * r[(j + 7) % 96] + r[(j + 13) % 96];
    }
    #pragma unroll
    for (int j = 0; j < 96; ++j) y[threadIdx.x + j * n] = r[j];
}
"""


def cuda(text: str, cc: tuple[int, int] = (9, 0), **more) -> Compiled:
    return build(
        CompileRequest("cuda", more.pop("name", "k.cu"), more.pop("entries", ()), cc, text=text, **more)
    )


def test_resources_of_a_kernel_that_spills():
    free = cuda(SPILLS, knobs={"BOUNDS": ""}).kernels["crowd"]
    capped = cuda(SPILLS, knobs={"BOUNDS": ""}, reg_cap=32).kernels["crowd"]
    assert free.registers > 96 and free.spill_bytes == 0 and free.local_bytes == 0
    assert capped.registers == 32 and capped.register_limit == 32
    assert capped.spill_bytes > 64 and capped.local_bytes > 64


@pytest.mark.parametrize("cc", [(7, 5), (8, 0), (8, 9), (9, 0), (10, 0), (12, 0)])
def test_shared_memory_barriers_and_bounds(cc):
    compiled = cuda(
        """
        extern "C" __global__ void __launch_bounds__(192) turn(float *y) {
            __shared__ float tile[250];
            for (int i = threadIdx.x; i < 250; i += blockDim.x) tile[i] = y[i];
            __syncthreads();
            for (int i = threadIdx.x; i < 250; i += blockDim.x) y[i] = tile[249 - i];
        }
        extern "C" __global__ void plain(float *y) { y[threadIdx.x] = 1; }
        """,
        cc,
    )
    turn, plain = compiled.kernels["turn"], compiled.kernels["plain"]
    assert turn.shared_bytes == 1000  # without the kilobyte that 9.0 and newer reserve
    assert f"{turn.shared_bytes} bytes smem" in compiled.log
    assert turn.barriers == 1 and turn.max_threads == 192
    assert plain.shared_bytes == 0 and plain.barriers == 0 and plain.max_threads is None
    assert compiled.max_threads == 192
    assert Cubin(compiled.cubin).compute_capability == cc[0] * 10 + cc[1]


class TestCodeHash:
    def test_a_cap_that_changes_nothing_ties(self):
        plain, capped = (cuda(SCALE, knobs={"FACTOR": 2}, reg_cap=cap) for cap in (0, 64))
        assert plain.cubin != capped.cubin  # the cap is written down in it
        assert plain.code_hash == capped.code_hash

    def test_a_cap_that_bites_doesn_t(self):
        hashes = {cuda(SPILLS, knobs={"BOUNDS": ""}, reg_cap=cap).code_hash for cap in (0, 64, 32)}
        assert len(hashes) == 3

    def test_names_and_lines_don_t_count(self):
        plain = cuda(SCALE, knobs={"FACTOR": 2}, lineinfo=False)
        other = cuda("\n\n" + SCALE.replace("scale", "a_longer_name"), knobs={"FACTOR": 2}, name="other.cu")
        assert plain.code_hash == other.code_hash

    def test_immediates_constants_and_data_count(self):
        data = 'extern "C" __global__ void get(float *y) { y[threadIdx.x] = table[threadIdx.x & 3]; }'
        sources = [
            SCALE.replace("FACTOR", "2.0f"),
            SCALE.replace("FACTOR", "3.0f"),
            "__constant__ float table[4] = {1, 2, 3, 4};" + data,
            "__constant__ float table[4] = {1, 2, 3, 5};" + data,
            "__device__ float table[4] = {1, 2, 3, 4};" + data,
            "__device__ float table[4] = {1, 2, 3, 5};" + data,
        ]
        assert len({cuda(source).code_hash for source in sources}) == len(sources)

    def test_shared_memory_counts_even_where_code_is_equal(self):
        source = """
        extern "C" __global__ void fill(float *y) {
            __shared__ float tile[N];
            tile[threadIdx.x] = y[threadIdx.x];
            __syncthreads();
            y[threadIdx.x] = tile[threadIdx.x ^ 1];
        }
        """
        assert cuda(source, knobs={"N": 64}).code_hash != cuda(source, knobs={"N": 128}).code_hash

    def test_kernels_that_are_not_launched_don_t_count(self):
        extra = SCALE + 'extern "C" __global__ void other(int *y) { y[0] = 17; }'
        alone = cuda(SCALE, knobs={"FACTOR": 2}, entries=("scale",))
        beside = cuda(extra, knobs={"FACTOR": 2}, entries=("scale",))
        assert alone.code_hash == beside.code_hash

    def test_the_order_of_launches_counts(self):
        two = SCALE + 'extern "C" __global__ void other(int *y) { y[0] = 17; }'
        knobs = {"FACTOR": 2}
        forward = cuda(two, knobs=knobs, entries=("scale", "other"))
        assert forward.code_hash != cuda(two, knobs=knobs, entries=("other", "scale")).code_hash
        assert forward.code_hash == cuda(two, knobs=knobs, entries=("scale", "other")).code_hash

    def test_called_functions_count(self):
        source = """
        __device__ __noinline__ float step(float x, int n) {
            for (int i = 0; i < n; ++i) x = x * x + STEP;
            return x;
        }
        extern "C" __global__ void walk(float *y, int n) { y[threadIdx.x] = step(y[threadIdx.x], n); }
        """
        assert (
            cuda(source, knobs={"STEP": "1.5f"}).code_hash != cuda(source, knobs={"STEP": "2.5f"}).code_hash
        )


def test_spills_of_functions_count_for_their_callers():
    log = """
ptxas info    : Compiling entry function 'one' for 'sm_90'
ptxas info    : Function properties for one
ptxas         .     8 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Compiling entry function 'two' for 'sm_90'
ptxas info    : Function properties for two
    16 bytes stack frame, 100 bytes spill stores, 200 bytes spill loads
ptxas info    : Function properties for helper
ptxas         .     0 bytes stack frame, 1000 bytes spill stores, 2000 bytes spill loads
"""
    assert spill_bytes(log, "one", ["one", "two"]) == 3012
    assert spill_bytes(log, "two", ["one", "two"]) == 3300
    assert spill_bytes("", "one") == 0


@pytest.fixture(scope="module")
def cubin() -> bytes:
    return cuda(SCALE, knobs={"FACTOR": 2}).cubin


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_damaged_bytes_raise_only_value_error(cubin, data):
    broken = bytearray(cubin[: data.draw(st.integers(0, len(cubin)))])
    for _ in range(data.draw(st.integers(0, 8))):
        if broken:
            broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ValueError):
        parsed = Cubin(bytes(broken))
        for kernel in parsed.kernels:
            parsed.info(kernel)
            parsed.code_hash([kernel])


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"not a cubin at all", b"\x7fELF\x02" + bytes(100)])
def test_other_files_are_refused(data):
    with pytest.raises(ValueError, match="cubin"):
        Cubin(data)


def test_binary_form_keeps_everything():
    compiled = cuda(SPILLS, knobs={"BOUNDS": "__launch_bounds__(256)"}, reg_cap=32)
    again = Compiled.from_bytes(compiled.to_bytes())
    assert again == compiled
    assert again.ptx is not None and ".visible .entry crowd" in again.ptx
    assert again.warnings == (
        "reg_cap=32 has no effect on 'crowd': the compiler obeys its __launch_bounds__ (256 threads) instead",
    )


@given(st.integers(0, 1 << 30), st.integers(1, 255))
@settings(deadline=None, max_examples=50)
def test_damaged_binary_form_is_noticed(position, flip):
    data = bytearray(STORED)
    data[position % len(data)] ^= flip
    with pytest.raises(ValueError, match="damaged"):
        Compiled.from_bytes(bytes(data))


STORED = Compiled("cuda", (9, 0), b"\x7fELF", {}, "00", log="words", ptx="ptx").to_bytes()
