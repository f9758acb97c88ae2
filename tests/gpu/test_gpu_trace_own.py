"""A program that launches its own kernel through `trace_host.h`; built with nvcc where there is one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from warpdeck.core.toolchain.sources import TRACE_INCLUDE
from warpdeck.core.tracing import document, read

pytestmark = pytest.mark.gpu

PROGRAM = r"""
#include <warpdeck/trace_host.h>
#include <cstdio>
#include <exception>
WD_STAGES(load, wait)
__global__ void kernel(const float *x, float *y, int n WD_TRACE_PARAM) {
    WD_TRACE_BEGIN();
    for (int i = 0; i < n; ++i) {
        WD_PUSH(load, i);
        float v = x[threadIdx.x + i * blockDim.x];
        y[threadIdx.x + i * blockDim.x] = v;
        WD_POP(load);
        WD_PUSH(wait, i);
        const long long until = clock64() + 4000;
        while (clock64() < until) {
        }
        WD_POP(wait);
    }
    WD_TRACE_END();
}
int main() try {
    float *x, *y;
    cudaMalloc(&x, 1 << 20);
    cudaMalloc(&y, 1 << 20);
    const dim3 grid(300), block(256);
    WD_TRACE_OPEN(trace, grid, block);
    kernel<<<grid, block>>>(x, y, 10 WD_TRACE_PASS(trace));
    WD_TRACE_SAVE(trace, "own.wdtrace");
    return 0;
} catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
"""


def test_its_file_has_every_range_with_its_time(tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc here")
    (tmp_path / "own.cu").write_text(PROGRAM)
    line = [
        nvcc,
        "-std=c++17",
        "-arch=native",
        "-DWARPDECK_TRACE",
        f"-I{TRACE_INCLUDE}",
        "own.cu",
        "-o",
        "own",
    ]
    subprocess.run(line, cwd=tmp_path, check=True)
    subprocess.run(["./own"], cwd=tmp_path, check=True)
    timeline = read(tmp_path / "own.wdtrace")
    assert timeline.warps.cta.size == 16 * 8 and timeline.dropped == timeline.mispaired_count == 0
    assert document(timeline)["ctas"] == {"traced": 16, "of": 300}
    waits = timeline.slices.stage == 1
    assert np.count_nonzero(waits) == 16 * 8 * 10
    lasted = (timeline.slices.end_ns - timeline.slices.start_ns)[waits]
    assert (lasted > 4000 / (1.1 * timeline.clock.ghz)).all() and timeline.clock.uncertainty_ns < 100
