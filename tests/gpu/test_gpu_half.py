"""A Numba kernel of one's own that computes in half precision: right, and traced between its pins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_support import warpdeck

pytestmark = pytest.mark.gpu

WORKLOAD = """
[workload]
name = "halfaxpy"
description = "y = 2x + 1, in half precision"
entry = "halfaxpy"
tolerance = { rtol = 5e-3, atol = 5e-3 }

[[argument]]
name = "x"
kind = "buffer"
dtype = "float32"
shape = ["n"]
direction = "in"
data = "normal"

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
name = "big"
role = "performance"
n = 1048576

[launch]
block = ["BLOCK"]
grid = ["ceil_div(n, BLOCK)"]
shared = 0

[knobs]
BLOCK = [128, 256]
"""
REFERENCE = """
import numpy as np


def reference(x, n):
    return 2 * x.astype(np.float64) + 1
"""
KERNEL = """
from numba import cuda, float32
from numba.cuda.types import float16

from warpdeck.kernels.stages import pin, stage


def make(BLOCK):
    def halfaxpy(x, y, n):
        i = cuda.grid(1)
        if i < n:
            with stage("load"):
                a = float16(x[i])
                a = pin(a)
            with stage("compute"):
                b = a + a + float16(float32(1.0))
                b = pin(b)
            with stage("store"):
                y[i] = float32(b)

    return halfaxpy
"""


def test_it_is_right_and_traced(isolated_home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "halfaxpy"
    folder.mkdir()
    for name, text in (("workload.toml", WORKLOAD), ("reference.py", REFERENCE), ("kernel.py", KERNEL)):
        (folder / name).write_text(text)
    checked = warpdeck("check", str(folder), "--device", "cuda:0", "--json")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    traced = warpdeck("trace", str(folder), "--device", "cuda:0", "--no-overhead", "--json")
    assert traced.returncode == 0, traced.stderr
    found = json.loads(traced.stdout)
    assert found["dropped"] == found["mispaired"] == 0
    assert [stage["name"] for stage in found["stages"]] == ["load", "compute", "store"]
    assert {stage["count"] for stage in found["stages"]} == {16 * 4}  # CTAs, warps of one
