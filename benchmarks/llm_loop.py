"""How the LLM agent's loop spends its time when the model answers at once, and what broken kernels cost it.

    python benchmarks/llm_loop.py [--workload gemm] [--size 2048] [--candidates 40] [--device cuda:0]

A local server of the OpenAI protocol proposes the rungs of the workload's ladder with drawn knobs, as a
model would: whole sources, launches as expressions. Among them are kernels that never end, that fault, and
that ask for too much. Goals: at least 60% of the run's wall time goes into judging candidates (their worker,
checks and timing); a kernel that hangs or faults costs at most its limit and 10 s, and never the run; the run
process stays below 1 GB.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from llm_server import LlmServer
from llm_steps import Asked, Step, answer

from warpdeck.core.workload import Variant, Workload
from warpdeck.kernels import load_workload
from warpdeck.sessions import launch
from warpdeck.sessions.events import Kind
from warpdeck.sessions.spec import RunSpec
from warpdeck.sessions.store import SessionStore

HANG = "    for (volatile int i = 0; i >= 0;) { }\n"
FAULT = "    *reinterpret_cast<volatile float *>(16) = 1.0f;\n"
HOG = "    extern __shared__ float hog[]; hog[threadIdx.x] = 1.0f;\n"
BROKEN = {"hang": HANG, "fault": FAULT, "hog": HOG}
EVERY = 12  # one in so many proposals is broken, after the first rungs
TOO_MUCH_SHARED = "300000"


def proposals(workload: Workload, size: int, seed: int) -> Iterator[dict[str, Any]]:
    """Rungs with drawn configurations, endlessly; some broken."""
    rng = random.Random(seed)
    rungs = [v for v in workload.ladder() if v.precision is None][1:]
    params = workload.size_case(size).params
    kinds = list(BROKEN)
    count = 0
    while True:
        count += 1
        rung = rng.choice(rungs[len(rungs) // 2 :])
        knobs = rng.choice(workload.space_of(rung.name).configs(params))
        proposal = _proposal(rung, knobs)
        if count % EVERY == 0:
            kind = kinds[count // EVERY % len(kinds)]
            proposal = _broken(proposal, rung, kind)
        yield proposal


def _proposal(rung: Variant, knobs: Any) -> dict[str, Any]:
    # A number that is drawn anew makes each text another source, as a model's would be.
    head = "".join(f"#define {name} {int(value)}\n" for name, value in knobs.items())
    launches = [
        {
            "entry": spec.entry,
            "grid": [_filled(text, knobs) for text in spec.grid],
            "block": [_filled(text, knobs) for text in spec.block],
            "shared": _filled(spec.shared, knobs),
        }
        for spec in rung.launches
    ]
    text = " ".join(f"{name}={value}" for name, value in knobs.items())
    return {
        "idea": f"{rung.name} with {text}",
        "summary": "",
        "source": head + rung.source(),
        "launches": launches,
        "case_launches": [],
    }


def _filled(expression: str, knobs: Any) -> str:
    return re.sub(r"\b[A-Za-z_]\w*\b", lambda m: str(knobs.get(m[0], m[0])), str(expression))


def _broken(proposal: dict[str, Any], rung: Variant, kind: str) -> dict[str, Any]:
    start = proposal["source"].index("{", proposal["source"].index(rung.entry + "(")) + 1
    source = proposal["source"][:start] + "\n" + BROKEN[kind] + proposal["source"][start:]
    launches = proposal["launches"]
    if kind == "hog":
        launches = [{**launch, "shared": TOO_MUCH_SHARED} for launch in launches]
    return {**proposal, "idea": kind, "source": source, "launches": launches}


class Model:
    """Answers ideas with ideas, and everything else with the next proposal."""

    def __init__(self, source: Iterator[dict[str, Any]]) -> None:
        self._source = source
        self._lock = threading.Lock()  # beam search asks in parallel

    def __call__(self, asked: Asked) -> Step:
        form = json.dumps(asked.body.get("response_format", {}))
        if '"ideas"' in form:
            return answer({"ideas": [{"idea": f"idea {i}", "why": "to see"} for i in range(4)]})
        with self._lock:
            return answer(next(self._source))


def peak_mb(pid: int) -> float:
    """Largest resident size of a process so far, MB; 0 once it is gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    found = re.search(r"VmHWM:\s+(\d+) kB", text)
    return int(found[1]) / 1000 if found else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description="the LLM agent's loop with an instant model")
    parser.add_argument("--workload", default="gemm")
    parser.add_argument("--size", type=int, default=2048)
    parser.add_argument("--candidates", type=int, default=40)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--strategy", choices=("linear", "beam"), default="beam")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    workload = load_workload(options.workload)
    model = Model(proposals(workload, options.size, options.seed))
    with LlmServer(default=model, models=["instant"]) as server:
        os.environ["OPENAI_BASE_URL"] = server.url
        settings = {
            "model": "instant",
            "strategy": options.strategy,
            "parents": 2,
            "ideas": 4,
            "stagnation": 0,
        }
        spec = RunSpec(
            options.workload,
            agent="llm",
            device=options.device,
            space="ladder",
            sizes=(options.size,),
            steps=options.candidates,
            seed=options.seed,
            options=settings,
            finalists=4,
        )
        started = time.monotonic()
        run = launch.launch_run(spec)
        peak = 0.0
        while run.process.poll() is None:
            peak = max(peak, peak_mb(run.process.pid))
            time.sleep(0.2)
        wall = time.monotonic() - started
    with SessionStore.open(run.folder) as store:
        report(store, wall, peak, server)


def report(store: SessionStore, wall: float, peak: float, server: LlmServer) -> None:
    """Print the figures as Markdown."""
    events = list(store.events())
    first = next((e.t for e in events if e.kind == Kind.BASELINE), events[0].t)
    searched = next((e.t for e in events if e.kind == Kind.RESULT), events[-1].t)
    found = [e for e in events if e.kind == Kind.EVALUATION]
    judging = sum(e.data["check_s"] + e.data["time_s"] for e in found)
    compiling = sum(e.data["compile_s"] for e in found)
    state = store.state()
    result = next((e for e in events if e.kind == Kind.RESULT), None)
    finish = float(result.data.get("finish_s") or 0.0) if result else 0.0
    print(f"{len(found)} candidates, {len(server.asked)} requests, {wall:.1f} s from start to end;")
    print(f"{searched - first:.1f} s from the baseline to the result\n")
    print("| part | s | share of the wall time |")
    print("|---|--:|--:|")
    for name, seconds in (
        ("checking and timing candidates", judging),
        ("re-measuring the finalists in pairs", finish),
        ("compiling (beside other work)", compiling),
    ):
        print(f"| {name} | {seconds:.1f} | {seconds / wall:.0%} |")
    measuring = judging + finish
    print(f"\nmeasuring: {measuring / wall:.0%} of the wall time (goal 60%)")
    print(f"largest resident size of the run process: {peak:.0f} MB (goal 1,000)")
    print(f"ended: {state.lifecycle} {state.reason}\n")
    print("| status | candidates | longest check and timing, s |")
    print("|---|--:|--:|")
    by_status: dict[str, list[float]] = {}
    previous = first
    for event in found:
        by_status.setdefault(str(event.data["status"]), []).append(event.t - previous)
        previous = event.t
    for status, seconds in sorted(by_status.items()):
        print(f"| {status} | {len(seconds)} | {max(seconds):.1f} |")


if __name__ == "__main__":
    main()
