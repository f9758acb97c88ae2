"""Logs as runs write them, with made-up times; for the tests of sessions."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import synthetic

from warpdeck.core.model import CacheMode, Config, Evaluation, Measurement, Resources, Status
from warpdeck.kernels import load_workload
from warpdeck.sessions.store import SessionStore

SOFTMAX = load_workload("softmax")
CASES = [SOFTMAX.size_case(n) for n in (256, 1024)]


def judged(config: Config, ms: float, space: str = "classic", registers: int = 40) -> Evaluation:
    """An evaluation as a device makes it: `ms` at size 256 and four times that at 1024."""
    candidate = SOFTMAX.candidate(space, config)
    times = [np.array([ms, ms * 1.1, ms * 0.9]) * scale for scale in (1, 4)]
    return Evaluation(
        candidate,
        Status.OK,
        measurements=tuple(
            Measurement(case.name, CacheMode.COLD, "cupti", t, ci95_ms=(t[0] * 0.99, t[0] * 1.01))
            for case, t in zip(CASES, times, strict=True)
        ),
        launches={case.name: SOFTMAX.launches(candidate, case) for case in CASES},
        resources=Resources(registers, occupancy=0.5),
    )


def start_event(space: str = "classic") -> dict[str, object]:
    return {
        "workload": "softmax",
        "agent": "sweep",
        "seed": 0,
        "space": space,
        "cases": [{"name": c.name, "params": dict(c.params)} for c in CASES],
        "device": synthetic.DEVICE.to_json(),
        "protocol": {"cache": "cold"},
        "steps": 9,
        "knobs": {k: list(v) for k, v in SOFTMAX.space(space).knobs.items()},
    }


def swept_session(sessions: Path) -> SessionStore:
    """A finished sweep of `classic`, evaluated in an odd order, with one failure and one repetition."""
    store = SessionStore.create(sessions, "swept", {"workload": "softmax", "agent": "sweep"})
    store.append("state", {"state": "running"})
    store.append("start", start_event())
    store.append("baseline", judged({"block_size": 256, "reg_cap": 0}, 0.8, registers=56).to_json())
    configs = SOFTMAX.space("classic").configs()
    for step, config in enumerate(reversed(configs), 1):
        block, cap = int(config["block_size"]), int(config["reg_cap"])
        ms = 0.5 + block / 1000 + cap / 1e5
        evaluation = judged(config, ms, registers=cap or 56)
        if config == {"block_size": 64, "reg_cap": 32}:
            evaluation = dataclasses.replace(evaluation, status=Status.INCORRECT, measurements=())
        store.append("evaluation", {"step": step, **evaluation.to_json()})
        store.append("step", {"step": step, "reward": 0.1, "speedup": 0.8 / ms, "best_speedup": 1.0})
    store.append("evaluation", {"step": 10, **judged({"block_size": 128, "reg_cap": 0}, 9.0).to_json()})
    store.append("message", {"level": "info", "text": "hello"})
    store.append("sample", {"t": 1.0, "power_w": 350.5, "throttle": ["idle"]})
    store.append("artifact", {"name": "note", "path": "artifacts/note.txt"})
    (store.folder / "artifacts" / "note.txt").write_text("hi")
    store.append("state", {"state": "finished", "exit_code": 0})
    return store


# A user's workload in CUDA C++, with a header of its own (scale.cuh).
AXPY_CU = """
#include "scale.cuh"
#define TWICE(x) ((x) * SCALE / 2)
static __device__ float helper(float v) { return TWICE(v); }
extern "C" __global__ void axpy(const float* x, float* y, int n, float a) {
    int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i < n) y[i] += a * helper(x[i]);
}
"""

AXPY_TOML = """
[workload]
name = "axpy"
description = "y = a*x + y"
entry = "axpy"

[sizes]
n = "size"

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
direction = "inout"

[[argument]]
name = "n"
kind = "scalar"
dtype = "int32"
value = "n"

[[argument]]
name = "a"
kind = "scalar"
dtype = "float32"
value = "2"

[[case]]
name = "odd"
role = "correctness"
n = 1003

[launch]
block = ["BLOCK"]
grid = ["ceil_div(n, BLOCK)"]
shared = 0

[knobs]
BLOCK = [64, 256]
reg_cap = [0, 32]
"""
