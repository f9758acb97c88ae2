"""How the LLM agent's loop spends its time when the model answers at once, and what broken kernels cost it.

    python benchmarks/llm_loop.py [--workload gemm] [--size 2048] [--candidates 40] [--finalists 4]
        [--without hang]

A local server of the OpenAI protocol proposes the rungs of the workload's ladder, each configuration once, as
a model would: whole sources, launches as expressions. Among them are kernels that never end, that fault, and
that need more memory than there is (`BROKEN`). Goals: at least 60% of the run's wall time is measuring; a
broken kernel costs at most its limit and 10 s, and never the run; the run process stays below 1 GB.

*Measuring* is what happens in a worker that is ready: loading a candidate and its inputs, its checked
launches and the comparison with the reference, the timing protocol, and paired re-measurement, of candidates
and of the baseline that they are compared with. It is none of these: start-up, proposals, compiling, starting
processes and contexts (also where timing has to wait for them), the vendor's library, files, the end. Wall
time is from the run process' start to its end.
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
from collections.abc import Iterator, Sequence
from contextlib import suppress
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

BROKEN = {  # what stands before the kernel, and what it begins with
    "hang": ("", "while (true) *reinterpret_cast<volatile float *>(c) = 0.0f;"),  # to be ended after 10 s
    "fault": ("", "*reinterpret_cast<volatile float *>(16) = 1.0f;"),
    "memory": ("__device__ float hog[1ull << 36];", "if (hog[threadIdx.x << 20] != 0.0f) c[0] = 1.0f;"),
    "shared": ("", "extern __shared__ float hog[]; hog[threadIdx.x] = 1.0f;"),  # refused before it runs
}
SCHEDULE = {5: "fault", 10: "memory", 15: "hang", 20: "shared", 25: "fault", 30: "memory"}  # by proposal
TOO_MUCH_SHARED = "300000"


def proposals(
    workload: Workload, size: int, seed: int, without: Sequence[str] = ()
) -> Iterator[dict[str, Any]]:
    """The configurations of the upper rungs in a drawn order; some broken, but not in the ways `without`."""
    rungs = [v for v in workload.ladder() if v.precision is None][1:]
    params = workload.size_case(size).params
    every = [(r, c) for r in rungs[len(rungs) // 2 :] for c in workload.space_of(r.name).configs(params)]
    random.Random(seed).shuffle(every)
    for count, (rung, knobs) in enumerate(every, 1):
        proposal = _proposal(rung, knobs)
        kind = SCHEDULE.get(count)
        yield proposal if kind is None or kind in without else _broken(proposal, rung, kind)


def _proposal(rung: Variant, knobs: Any) -> dict[str, Any]:
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
    before, first = BROKEN[kind]
    source = proposal["source"]
    start = source.index("{", source.index(rung.entry + "(")) + 1
    launches = proposal["launches"]
    if kind == "shared":
        launches = [{**launch, "shared": TOO_MUCH_SHARED} for launch in launches]
    source = f"{before}\n{source[:start]}\n    {first}\n{source[start:]}"
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


def started_by(pid: int) -> Iterator[int]:
    """The processes that a process has, directly or not."""
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, file.read_text().split()):
                yield child
                yield from started_by(child)


def main() -> None:
    parser = argparse.ArgumentParser(description="the LLM agent's loop with an instant model")
    parser.add_argument("--workload", default="gemm")
    parser.add_argument("--size", type=int, default=2048)
    parser.add_argument("--candidates", type=int, default=40)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--strategy", choices=("linear", "beam"), default="beam")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--without", action="append", choices=tuple(BROKEN), default=[])
    parser.add_argument("--finalists", type=int, default=4)
    options = parser.parse_args()
    workload = load_workload(options.workload)
    model = Model(proposals(workload, options.size, options.seed, options.without))
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
            finalists=options.finalists,
        )
        started = time.monotonic()
        run = launch.launch_run(spec)
        peak = others = 0.0
        try:
            while run.process.poll() is None:
                peak = max(peak, peak_mb(run.process.pid))
                others = max([others, *map(peak_mb, started_by(run.process.pid))])
                time.sleep(0.2)
        finally:  # it would outlive this process
            launch.stop_run(run.folder, process=run.process, grace_s=0)
        wall = time.monotonic() - started
    with SessionStore.open(run.folder) as store:
        report(store, wall, peak, others)


def report(store: SessionStore, wall: float, peak: float, others: float) -> None:
    """Print the figures as Markdown. `peak`, `others`: MB of the run process, of the largest it started."""
    events = list(store.events())
    if not any(e.kind == Kind.RESULT for e in events):
        sys.exit(f"the run has no result: {(store.folder / launch.LOG).read_text().strip()}")
    found = [e for e in events if e.kind == Kind.EVALUATION]
    judged = [e.data for e in events if e.kind in (Kind.EVALUATION, Kind.BASELINE)]
    first = next(e for e in events if e.kind == Kind.BASELINE)
    known, begun = first.t, first.t - first.data["check_s"] - first.data["time_s"]
    result = next(e for e in events if e.kind == Kind.RESULT)
    finish = float(result.data.get("finish_s") or 0.0)
    spent = {
        "checks": sum(data["check_s"] for data in judged),
        "timing": sum(data["time_s"] for data in judged),
        "pairs": float(result.data.get("compared_s") or 0.0),
    }
    ideas = {e.data["variant"]: e.data["idea"] for e in events if e.kind == Kind.ATTEMPT}
    state = store.state()
    print(f"{len(found)} candidates: {dict(state.counts)}; ended: {state.lifecycle} {state.reason}\n")
    print("| part of the run | s | share of the wall time |")
    print("|---|--:|--:|")
    measuring = sum(spent.values())
    phases = {
        "from start to end": wall,
        "measuring: checks": spent["checks"],
        "measuring: timing": spent["timing"],
        "measuring: paired samples": spent["pairs"],
        "until the first check of the baseline": begun - (events[-1].t - wall),
        "until the baseline is known": known - (events[-1].t - wall),
        "the search": result.t - finish - known,
        "the finalists": finish,
        "from the result to the end": events[-1].t - result.t,
    }
    for name, seconds in phases.items():
        print(f"| {name} | {seconds:.1f} | {seconds / wall:.0%} |")
    hung = sum(e.data["check_s"] for e in found if e.data["status"] == "timeout")
    print(f"\nmeasuring: {measuring / wall:.1%} of the wall time (goal 60%)")
    if hung:
        rest, without = measuring - hung, (measuring - hung) / (wall - hung)
        print(f"with the hung kernels' {hung:.1f} s as waste: {rest / wall:.1%}; without them: {without:.1%}")
    print(f"compiling, in other processes: {sum(e.data['compile_s'] for e in found):.1f} s")
    print(f"largest resident size of the run process: {peak:.0f} MB (goal 1,000)")
    print(f"of a process that it started: {others:.0f} MB\n")
    print("| candidates | number | longest, from its first check to the end of its worker if it failed, s |")
    print("|---|--:|--:|")
    kinds: dict[str, list[float]] = {}
    for event in found:
        idea = ideas.get(event.data["variant"], "")
        kind = f"{idea if idea in BROKEN else 'sound'}: {event.data['status']}"
        kinds.setdefault(kind, []).append(event.data["check_s"] + event.data["time_s"])
    for kind, seconds in sorted(kinds.items()):
        print(f"| {kind} | {len(seconds)} | {max(seconds):.2f} |")


if __name__ == "__main__":
    main()
