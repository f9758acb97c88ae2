"""Logs as the agents that try sources write them, with made-up times and answers, and the sources to them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from warpdeck.sessions.events import Event

START = 1_796_000_000.0
GPU = {
    "name": "NVIDIA H200",
    "spec": "cuda:0",
    "recorded": False,
    "compute_capability": [9, 0],
    "sm_count": 132,
    "memory_bytes": 150_000_000_000,
    "dram_gbs": 4812.8,
    "fp32_tflops": 66.9,
    "driver": "580.95",
}
CPU = {"name": "CPU emulation", "spec": "cpu", "recorded": False, "emulated": True}

NAIVE = """\
// One thread a row sum, straight from the definition.
extern "C" __global__ void row_sum(const float* __restrict__ x, float* y, int rows, int columns)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int i = 0; i < columns; ++i) {
        sum += x[row * columns + i];
    }
    y[row] = sum;
}
"""
WARP = """\
// One warp a row: neighbours read neighbours, and shuffles add the lanes up.
#define FULL 0xffffffffu

__device__ float warp_sum(float value)
{
    for (int offset = 16; offset > 0; offset /= 2)
        value += __shfl_xor_sync(FULL, value, offset);
    return value;
}

extern "C" __global__ void row_sum(const float* __restrict__ x, float* y, int rows, int columns)
{
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    int lane = threadIdx.x % 32;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int i = lane; i < columns; i += 32) {
        sum += x[row * columns + i];
    }
    sum = warp_sum(sum);
    if (lane == 0) y[row] = sum;
}
"""
VECTOR = WARP.replace(
    """\
    for (int i = lane; i < columns; i += 32) {
        sum += x[row * columns + i];
    }
""",
    """\
    const float4* row4 = reinterpret_cast<const float4*>(x + (size_t)row * columns);
    for (int i = lane; i < columns / 4; i += 32) {
        float4 v = row4[i];
        sum += (v.x + v.y) + (v.z + v.w);
    }
""",
).replace("neighbours read neighbours", "every lane reads 16 bytes at once")
BROKEN = VECTOR.replace("float4 v = row4[i];", "float4 v = row4[i]")
SKIPPED = VECTOR.replace("columns / 4; i += 32", "columns / 4 - 1; i += 32")
UNROLLED = VECTOR.replace(
    "    for (int i = lane; i < columns / 4; i += 32) {\n",
    "    #pragma unroll 4\n    for (int i = lane; i < columns / 4; i += 32) {\n",
)

# parent, repaired, idea, summary, source, status, message, ms, kept, verdict
EXPECTED = "row.cu(18): expected ';'"
WRONG = "case odd: row 7 is 31.25, expected 32.5"
# parent, repaired, idea, summary, source, status, message, ms, kept, verdict
TRIED: tuple[tuple[Any, ...], ...] = (
    (None, None, "the initial kernel", "One thread a row.", NAIVE, "ok", "", 1.92, True, "win"),
    (1, None, "a warp a row", "Lanes read neighbours; shuffles add up.", WARP, "ok", "", 0.212, True, "win"),
    (2, None, "float4 loads", "Four values a load.", BROKEN, "compile_error", EXPECTED, 0, False, None),
    (2, 3, "float4 loads", "The missing semicolon.", VECTOR, "ok", "", 0.0688, True, "win"),
    (4, None, "skip the last step", "It is rarely needed.", SKIPPED, "incorrect", WRONG, 0, False, None),
    (4, None, "unroll by four", "Four loads in flight a lane.", UNROLLED, "ok", "", 0.0684, False, "tie"),
)
REASONING = """\
The kernel reads each value once, so the floor is DRAM bandwidth. At 0.067 ms for 268 MB it already moves \
4.0 TB/s, 83% of the peak. More loads in flight would hide the rest of the latency: two independent float4 \
accumulators a lane instead of one.
"""


def source_path(number: int) -> str:
    return f"artifacts/attempts/{number:03}.cu"


def write_sources(folder: Path) -> None:
    """The attempts' files, as the agent leaves them in a session."""
    for number, tried in enumerate(TRIED, 1):
        file = folder / source_path(number)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(tried[4])


def judged(number: int, status: str, message: str, ms: float | None) -> dict[str, Any]:
    """An `evaluation` event's data."""
    measured = {"case": "8192", "cache": "cold", "clock": "cupti", "median_ms": ms}
    return {
        "step": number,
        "candidate": f"c{number}",
        "variant": f"attempt_{number}",
        "source_hash": "0" * 12,
        "config": {},
        "status": status,
        "message": message,
        "score_ms": ms or None,
        "measurements": [{**measured, "ci95_ms": [ms * 0.993, ms * 1.007]}] if ms else [],
        "resources": {"registers": 24 + number, "occupancy": 1.0, "code_hash": ""},
        "same_as": None,
    }


class Log:
    """Events in order, a second apart."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.t = START

    def add(self, kind: str, after: float = 1.0, /, **data: Any) -> None:
        self.t += after
        self.events.append(Event(len(self.events) + 1, self.t, kind, data))


def begun(agent: str, device: dict[str, Any], steps: int) -> Log:
    """A log up to the baseline."""
    log = Log()
    log.add("state", 0.0, state="running", reason="")
    timed = not device.get("emulated")
    log.add(
        "start",
        workload="row_sum",
        agent=agent,
        seed=0,
        space="full",
        cases=[{"name": "8192" if timed else "256", "params": {"n": 8192}}],
        device=device,
        protocol={"cache": "cold", "samples": 100},
        steps=steps,
        vendor={"8192": {"name": "PyTorch", "median_ms": 0.071}} if timed else {},
        floors={"8192": 0.0558} if timed else {},
    )
    first = judged(1, "ok", "", 1.92 if timed else None)
    log.add("baseline", **{**first, "step": None})
    return log


def told(number: int, **more: Any) -> dict[str, Any]:
    """An `attempt` event's data."""
    parent, repairs, idea, summary, *_ = TRIED[number - 1]
    entry = {"entry": "row_sum", "grid": [1024, 1, 1], "block": [256, 1, 1], "shared": 0}
    return {
        "attempt": number,
        "parent": parent,
        "repairs": repairs,
        "idea": idea,
        "summary": summary,
        "variant": f"attempt_{number}",
        "candidate": f"c{number}",
        "source": source_path(number),
        "launches": {"8192": [entry]},
        **more,
    }


def llm_events(
    device: dict[str, Any] = GPU, *, count: int = len(TRIED), asking: bool = True, cost: float | None = 0.0041
) -> list[Event]:
    """A run of the `llm` agent with `count` attempts; `asking`: the next answer is being streamed."""
    log = begun("llm", device, 12)
    log.add("node", node="initialise", detail="row_sum on the device")
    log.add("node", node="reference", detail="")
    log.add("node", node="initial", detail="attempt 1")
    timed = not device.get("emulated")
    for number, tried in enumerate(TRIED[:count], 1):
        status, message, ms, kept, verdict = tried[5:]
        if number > 1:
            ask(log, number, "repair" if tried[1] else "propose", tried[2], tried[4], cost)
        log.add("attempt", 0.1, **told(number))
        if number > 1:
            log.add("node", 0.1, node="evaluate", detail=f"attempt {number}")
        log.add("evaluation", 0.5, **judged(number, status, message, ms if timed else None))
        log.add("attempt", 0.1, **told(number, kept=kept, verdict=verdict, reason=f"over attempt {tried[0]}"))
        log.add(
            "step", 0.1, step=number, reward=0.0, speedup=1.92 / ms if ms and timed else None, status=status
        )
        log.add("node", 0.1, node="refine", detail=f"attempt {number}: {status}")
    if asking:
        log.add("node", node="propose", detail=f"attempt {count + 1}, from attempt 4")
        request(log, count + 1, "propose")
        for piece in ('{"idea": "two accumulators", "source": "// One warp a row', "\\n#define FULL 0xff"):
            log.add("partial", id=f"r{count + 1}", text=piece, reasoning="")
    return log.events


def request(log: Log, number: int, purpose: str) -> None:
    log.add(
        "request",
        id=f"r{number}",
        purpose=purpose,
        attempt=number,
        model="gpt-5-mini",
        messages=[{"role": "user", "content": "…"}],
        params={"reasoning": {"effort": "medium", "summary": "auto"}, "stream": True},
    )


def ask(log: Log, number: int, purpose: str, idea: str, source: str, cost: float | None) -> None:
    """A request, the streamed answer, a tool call."""
    log.add("node", node=purpose, detail=f"attempt {number}")
    request(log, number, purpose)
    text = json.dumps({"idea": idea, "source": source})
    for at in range(0, len(text), 400):
        log.add("partial", 0.5, id=f"r{number}", text=text[at : at + 400], reasoning="")
    log.add(
        "response",
        id=f"r{number}",
        text=text,
        reasoning=REASONING,
        tool_calls=[],
        usage={"input": 2100 + 400 * number, "cached": 1500, "output": 900, "reasoning": 620},
        cost=cost,
        seconds=11.5,
        from_log=False,
    )
    searched = {"query": "coalescing"}
    log.add("tool", id=f"r{number}", name="search_docs", arguments=searched, result="…", seconds=0.01)


RUNGS = (
    ("naive", 1.92, None),
    ("warp a row", 0.212, None),
    ("float4 loads", 0.0688, None),
    ("tensor cores", 0.06, "tf32"),
)


def ladder_events(device: dict[str, Any] = GPU) -> list[Event]:
    """A run of the `ladder` agent: rungs with their verdicts, no model."""
    log = begun("ladder", device, len(RUNGS))
    timed = not device.get("emulated")
    for number, (title, ms, precision) in enumerate(RUNGS, 1):
        log.add("evaluation", **judged(number, "ok", "", ms if timed else None))
        log.add(
            "attempt",
            0.1,
            attempt=number,
            parent=number - 1 or None,
            idea=f"rung {number - 1}: {title}",
            summary="",
            variant=title,
            candidate=f"c{number}",
            precision=precision,
            source=None,
            launches={},
            repairs=None,
            kept=precision is None,
            verdict="win",
        )
        log.add("step", 0.1, step=number, reward=0.0, speedup=1.92 / ms if timed else None, status="ok")
    log.add("state", state="finished", reason="the top of the ladder")
    return log.events
