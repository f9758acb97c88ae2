"""Which launch a user's words mean, traced: what `warpdeck trace` and `warpdeck.trace` have in common."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping
from typing import Any

from ..core.bench import performance_cases
from ..core.devices.recorded import RecordedDevice
from ..core.model import Candidate
from ..core.tracing import DEFAULT_CTAS, TraceOptions, choose, trace
from ..core.workload import Workload
from ..kernels.loader import load_workload
from ..kernels.recordings import open_device
from ..telemetry.trace.timeline import RawTrace
from .contenders import completed, implementation


def trace_named(
    workload: str,
    *,
    device: str = "auto",
    variant: str | None = None,
    space: str | None = None,
    knobs: Mapping[str, str] | None = None,
    size: int | None = None,
    options: TraceOptions | None = None,
    seed: int = 0,
    allow_shared: bool = False,
) -> RawTrace:
    """Trace one launch.

    Args:
        workload: name or folder.
        device: as `--device`. A recorded one shows a trace that was recorded: of what is named here, else of
            the workload's usual variant and size if it has that, else its first.
        variant: a variant's name, or a source file for the same task; None: the space's.
        space: whose knobs are named; None: the variant's first, or the first that has all the knobs.
        knobs: values by name, as texts; others take the baseline's value, else the first allowed.
        size: the case; None: the workload's first performance case.
        options: None: 16 CTAs, exactly sized, with the overhead.
        seed: of the inputs.
        allow_shared: go on although other processes use the GPU.

    Returns:
        The trace. Its meta holds `command`, which traces the same again at the exact size, and `stale`:
        whether the kernel's source has changed since it was recorded.

    Raises:
        As `core.tracing.trace`; NoDeviceError: the device isn't there.
    """
    loaded = load_workload(workload)
    implemented, chosen = implementation(loaded, variant, space, knobs=knobs or {})
    sizes = [] if size is None else [size]
    case = performance_cases(loaded, sizes)[0]
    config = completed(chosen, knobs or {}, loaded, sizes)
    options = options or TraceOptions()
    opened = open_device(device, allow_shared=allow_shared)
    try:
        if isinstance(opened, RecordedDevice):
            raw = _recorded(
                opened,
                loaded,
                implemented.name,
                case.name,
                named=variant,
                sized=size is not None,
                config=config if knobs else None,
            )
            source = loaded.variants.get(str(raw.meta["variant"]))
            stale = source is None or raw.meta.get("source_hash") != source.source_hash
            return dataclasses.replace(raw, meta={**raw.meta, "stale": stale})
        both = dataclasses.replace(loaded, variants={**loaded.variants, implemented.name: implemented})
        candidate = Candidate(implemented.name, config, implemented.source_hash)
        raw = trace(
            both, opened, candidate, case, options, space=chosen.name, seed=seed, allow_shared=allow_shared
        )
    finally:
        opened.close()
    command = _command(workload, variant, space, config, size, options, seed)
    return dataclasses.replace(raw, meta={**raw.meta, "command": command, "stale": False})


def _recorded(
    device: RecordedDevice,
    workload: Workload,
    variant: str,
    case: str,
    *,
    named: str | None,
    sized: bool,
    config: Mapping[str, Any] | None,
) -> RawTrace:
    """What is usual comes first among the traces that have all that was named."""
    found = sorted(device.traces(workload.name), key=lambda t: (t.variant != variant, t.case != case))
    wanted = {
        "variant": variant if named or config else None,
        "case": case if sized else None,
        "config": None if config is None else dict(config),
    }
    return choose(found, device.info.spec, workload.name, **wanted).raw


def _command(
    workload: str,
    variant: str | None,
    space: str | None,
    config: Mapping[str, Any],
    size: int | None,
    options: TraceOptions,
    seed: int,
) -> str:
    """The command line that traces the same again, sized exactly."""
    words = ["warpdeck", "trace", workload]
    for option, value in (("--variant", variant), ("--space", space)):
        words += [option, value] if value else []
    words += ["--knob", ",".join(f"{k}={v}" for k, v in config.items())] if config else []
    words += ["--size", str(size)] if size is not None else []
    if options.ctas != DEFAULT_CTAS:
        words += ["--ctas", "all" if options.ctas is None else str(options.ctas)]
    if options.warp_mask is not None:
        words += ["--warps", ",".join(str(w) for w in range(32) if options.warp_mask >> w & 1)]
    if options.cache != TraceOptions.cache:
        words += ["--cache", str(options.cache)]
    words += ["--launch", str(options.launch)] if options.launch else []
    words += ["--seed", str(seed)] if seed else []
    return shlex.join(words)
