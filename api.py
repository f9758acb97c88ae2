"""The Python interface: what the command line does, in a notebook or a script.

    import warpdeck

    with warpdeck.open_bench("softmax", "recorded:h200", space="classic", sizes=[1024]) as bench:
        result = warpdeck.run_agent(bench, "tpe", steps=50)
        print(result.best)

Every name here is also a name of the package. A script that opens a live device starts processes: guard what
it does with `if __name__ == "__main__":`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .agents.base import Control, EventSink, search
from .agents.registry import make
from .core.bench import Bench, performance_cases
from .core.compare import Comparison
from .core.devices.base import Device
from .core.errors import UsageError
from .core.model import CacheMode, Protocol
from .core.profiling import ProfileOptions
from .core.ranking import Result
from .core.tracing import TraceOptions, decoded
from .core.workload import Workload
from .kernels.imported import open_workload
from .kernels.recordings import DEFAULT_SPACE, open_device
from .telemetry.ncu.counters import Counters
from .telemetry.trace.timeline import Timeline


@contextmanager
def open_bench(
    workload: str | Path | Workload,
    device: str | Device = "auto",
    *,
    space: str | None = None,
    sizes: Sequence[int] = (),
    protocol: Protocol | None = None,
    seed: int = 0,
    sink: EventSink | None = None,
    allow_shared: bool = False,
) -> Iterator[Bench]:
    """A bench for a `with` statement: judges configurations of one workload on one device.

    Args:
        workload: a bundled name, a folder, an imported recording's file, or one that is loaded.
        device: `auto`, `cuda:N`, `recorded:NAME`, `recorded:FILE`, or one that is open (which stays open).
        space: name of the search space; None: `full`, of an imported recording its own.
        sizes: a performance case each; empty means the workload's own cases, or its default size.
        protocol: how each configuration is measured; the default is cold, 10 warm-ups, up to 100 samples;
            of an imported recording as recorded.
        seed: of inputs and of what a recorded device draws.
        sink: receives every event as `(kind, data)`.
        allow_shared: measure although other processes use the GPU.

    Raises:
        UsageError: an unknown name, an impossible size, an unrecorded case, an empty space.
        NoDeviceError: the CUDA device isn't there.
    """
    loaded = workload if isinstance(workload, Workload) else open_workload(str(workload))
    space = space or (next(iter(loaded.spaces)) if loaded.recorded else DEFAULT_SPACE)
    cases = performance_cases(loaded, sizes)
    opened = open_device(device, allow_shared=allow_shared) if isinstance(device, str) else device
    try:
        bench = Bench(
            loaded,
            opened,
            space=space,
            cases=cases,
            protocol=protocol,
            seed=seed,
            sink=sink,
            allow_shared=allow_shared,
        )
        try:
            yield bench
        finally:
            bench.close()
    finally:
        if isinstance(device, str):
            opened.close()


def run_agent(
    bench: Bench,
    agent: str = "tpe",
    *,
    steps: int = 100,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    time_limit_s: float | None = None,
    sink: EventSink | None = None,
    control: Control | None = None,
) -> Result:
    """Search with an agent, then re-measure the finalists against the baseline.

    Args:
        bench: from `open_bench`.
        agent: `sweep`, `random`, `tpe` or `ppo`.
        steps: evaluations, failures included.
        seed: of the agent's draws.
        options: the agent's own settings, by name.
        time_limit_s: seconds after which no further evaluation starts.
        sink: receives a `step` event after every evaluation.
        control: pauses and stops the search.

    Returns:
        The best configuration with its paired speedup, its cases, and the set tied with it.

    Raises:
        UsageError: an unknown agent or option, or a missing extra.
    """
    strategy = make(agent, bench, seed=seed, options=options)
    search(bench, strategy, steps=steps, time_limit_s=time_limit_s, sink=sink, control=control)
    return bench.finish()


def trace(
    workload: str | Path,
    device: str = "auto",
    *,
    variant: str | None = None,
    knobs: Mapping[str, Any] | None = None,
    size: int | None = None,
    options: TraceOptions | None = None,
    **more: Any,
) -> Timeline:
    """Trace one launch: when each warp loads, waits, computes, stores.

    The launch is checked like any candidate's. `timeline.slices` and `timeline.marks` are columns of arrays,
    times in nanoseconds; `timeline.clock.uncertainty_ns` bounds the error between SMs, `timeline.dropped`
    counts what found no room, `timeline.meta["overhead"]` tells what tracing costs.

    Args:
        workload: name or folder.
        device: `auto`, `cuda:N`, or a recorded one, which shows what was recorded.
        variant: a variant's name, or a source file for the same task; None: the space's.
        knobs: values by name; others take the baseline's value, else the first allowed.
        size: the case; None: the workload's first performance case.
        options: which CTAs and warps, and how; None: 16 CTAs, exactly sized, with the overhead.
        more: `space`, `seed`, `allow_shared`, as `warpdeck trace` takes them.

    Raises:
        UsageError: an unknown name, an impossible value, or a trace that isn't recorded.
        VerificationError: the traced kernel's outputs are wrong.
        NoDeviceError: the device isn't there.
        WarpdeckError: it doesn't compile, has no stage markers, or failed otherwise.
    """
    from .sessions.traces import trace_named

    texts = {name: str(value) for name, value in (knobs or {}).items()}
    raw = trace_named(
        str(workload), device=device, variant=variant, knobs=texts, size=size, options=options, **more
    )
    return decoded(raw)


def profile(
    workload: str | Path,
    device: str | Device = "auto",
    *,
    knobs: Mapping[str, Any] | None = None,
    variant: str | None = None,
    space: str | None = None,
    size: int | None = None,
    metrics: str | Sequence[str] = "full",
    cache: str = "cold",
    invocation: int = 1,
    timeout_s: float = 120.0,
    report: Path | None = None,
    seed: int = 0,
    allow_shared: bool = False,
) -> Counters:
    """Hardware counters of one configuration, by Nsight Compute, as `warpdeck profile` reads them.

        counters = warpdeck.profile("softmax", knobs={"block_size": 128}, metrics="seed")
        counters.value("l2_hit_rate")  # in %, None if it is missing; counters.missing says why

    Args:
        workload: a bundled name, or a folder.
        device: `auto`, `cuda:N`, `recorded:NAME`, `recorded:FILE`, or one that is open (which stays open).
        knobs: values by name; others take the baseline's value.
        variant: a variant's name, or a source file for the same task; None: the space's.
        space: whose knobs are named; None: the variant's first, or the first that has all the knobs.
        size: None: the workload's own case, or its default size.
        metrics: a set (seed, cheap, roofline, stalls, memory, full), or names of ours and Nsight Compute's.
        cache: cold or hot.
        invocation: launches before the one that is profiled.
        timeout_s: time limit of Nsight Compute.
        report: where to keep its report (.ncu-rep).
        seed: of the inputs.
        allow_shared: go on although other processes use the GPU.

    Raises:
        UsageError: an unknown name, an impossible value, or nothing is recorded.
        NoDeviceError: the CUDA device isn't there.
        WarpdeckError: the kernel is wrong, or Nsight Compute failed; the message says what to do.
    """
    from .sessions.profiles import profile_one

    if cache not in ("cold", "hot"):
        raise UsageError(f"cache {cache!r}: use 'cold' or 'hot'")
    options = ProfileOptions(
        set=metrics if isinstance(metrics, str) else "seed",
        metrics=() if isinstance(metrics, str) else tuple(metrics),
        cache=CacheMode(cache),
        timeout_s=timeout_s,
        invocation=invocation,
        keep=report,
    )
    return profile_one(
        str(workload),
        device,
        knobs={name: str(value) for name, value in (knobs or {}).items()},
        variant=variant,
        space=space,
        size=size,
        options=options,
        seed=seed,
        allow_shared=allow_shared,
    )


def bench(workload: str | Path, **arguments: Any) -> Comparison:
    """Is this kernel faster? Takes the arguments of `sessions.contenders.Duel`, as `warpdeck bench` does."""
    from .sessions.contenders import Duel

    duel = Duel(str(workload), **arguments)
    try:
        return duel.run()
    finally:
        duel.close()
