"""`check`: correctness only."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..core.errors import ExitCode, UsageError
from . import options
from .output import json_document, line, message, table, warning

if TYPE_CHECKING:
    from ..core.workload import Tolerance


def check(
    workload: Annotated[
        str | None,
        typer.Argument(
            metavar="WORKLOAD|FILE.cu",
            help="A bundled workload's name, a workload's folder, or a .cu file: one in such a folder, or one"
            " that says which workload it implements, as best.cu does.",
        ),
    ] = None,
    variant: options.Variant = None,
    space: Annotated[
        str | None, typer.Option("--space", metavar="NAME", help="Whose configurations.")
    ] = None,
    slow: Annotated[
        bool, typer.Option("--slow", help="Every valid configuration, and size 2048 too.")
    ] = False,
    sanitize: Annotated[
        bool,
        typer.Option(
            "--sanitize", help="Also run compute-sanitizer's memcheck, racecheck, initcheck, synccheck."
        ),
    ] = False,
    device: options.Device = "auto",
    size: options.Sizes = None,
    request: Annotated[
        Path | None,
        typer.Option(
            "--request",
            metavar="FILE",
            help="Instead: one launch again, as a session's artifacts/requests say it.",
        ),
    ] = None,
    allow_unsandboxed: Annotated[
        bool,
        typer.Option(
            "--allow-unsandboxed",
            help="Run a reference that a model wrote although no sandbox works here.",
        ),
    ] = False,
    reference_limit: options.ReferenceLimit = None,
    seed: options.Seed = 0,
    allow_shared: options.AllowShared = False,
    as_json: options.Json = False,
) -> int:
    """Check a kernel against its reference: all its cases, derived ones, and its knobs' values.

    With --sanitize each tool of compute-sanitizer is one more line: what it found, and where. --device cpu
    emulates: right or wrong without a GPU; so does auto, for CUDA C++ that no recording knows. Exit code 0
    only if everything is right, else 5.
    """
    from ..core.sandbox import allow_unsandboxed as allow

    allow(allow_unsandboxed)
    if request is not None:
        if workload is not None or variant is not None or space is not None or size or reference_limit:
            others = "WORKLOAD, --variant, --space, --size and --reference-limit"
            raise UsageError(f"--request says what is run: leave {others} out")
        return _replay(request, device, seed, allow_shared, as_json)
    if workload is None:
        raise UsageError("which workload? `warpdeck workloads list` shows the bundled ones")
    from ..core.bench import performance_cases
    from ..core.devices.cpu import slow_warning
    from ..core.devices.recorded import RecordedDevice
    from ..core.verify import verify
    from ..kernels.bare import SPACE, read_bare, stands_alone
    from ..kernels.loader import load_workload
    from ..kernels.recordings import open_device
    from ..sessions.contenders import implementation

    if workload.endswith(".cu"):
        if variant is not None or space is not None:
            raise UsageError(f"{workload} is the variant: leave --variant and --space out")
        if stands_alone(Path(workload)):
            loaded, implemented = read_bare(Path(workload))
            chosen = loaded.space(SPACE)
        else:  # a source in a workload's folder
            loaded = load_workload(Path(workload).parent)
            implemented, chosen = implementation(loaded, workload, None)
    else:
        loaded = load_workload(workload)
        implemented, chosen = implementation(loaded, variant, space)
    if reference_limit is not None:
        loaded = replace(loaded, reference_limit_s=reference_limit)
    opened = open_device(device, allow_shared=allow_shared)
    recorded = isinstance(opened, RecordedDevice) and opened.recordings(loaded.name, chosen.name)
    if device == "auto" and opened.info.recorded and not recorded and implemented.language == "cuda":
        opened = open_device("cpu")  # which runs what no recording knows
        message(f"no CUDA GPU here; {opened.info.label}")
    if opened.info.emulated:
        slow_cases = slow_warning(loaded, performance_cases(loaded, size or (), opened.info))
        if slow_cases is not None:
            warning(slow_cases)
    try:
        found = verify(
            loaded,
            opened,
            implemented,
            space=chosen.name,
            sizes=size or (),
            slow=slow,
            sanitize=sanitize,
            seed=seed,
            allow_shared=allow_shared,
        )
    finally:
        opened.close()
    if as_json:
        json_document({**found.to_json(), "origins": dict(loaded.origins)})
    else:
        line(f"{found.workload}, variant {found.variant}, {found.device.label}")
        if loaded.generated_reference:
            checks = loaded.origins.get("checks", "not cross-checked")
            line(f"reference: {loaded.generated_reference}; {checks}")
        table(
            ["case", "role", "status", "largest error", "reason"],
            [
                (c.case, c.role, c.status, None if c.max_error is None else f"{c.max_error:.3g}", c.reason)
                for c in found.cases
            ],
            right=(3,),
        )
        line()
        if any(c.max_error is not None for c in found.cases):
            line(_measure(loaded.tolerance if implemented.tolerance is None else implemented.tolerance))
        when = " when they were recorded" if found.device.recorded else ""
        checked = f"{found.configs} configuration(s) checked{when}"
        if found.config is not None:
            checked += "; the last failed: " + " ".join(f"{k}={v}" for k, v in found.config.items())
        line(f"{found.status}: {found.reason or 'nothing wrong found'} ({checked})")
    return ExitCode.OK if found.ok else ExitCode.VERIFICATION


def _measure(tolerance: Tolerance) -> str:
    """What the column of errors counts in: 0.05 may be little, 1e-6 much."""
    if tolerance.exact:
        return "largest error: absolute; outputs must be equal"
    if tolerance.product is not None:
        return f"largest error: |C-R| / S, S the error scale of reference.py; at most {tolerance.product:g}"
    allowed = f"{tolerance.atol:g} + {tolerance.rtol:g}·|R|"
    return f"largest error: its share of what is allowed, {allowed}; at most 1"


def _replay(file: Path, device: str, seed: int, allow_shared: bool, as_json: bool) -> int:
    """Run a replay request, and print its verdict and time."""
    from ..sessions.replayed import replay

    found = replay(file, None if device == "auto" else device, seed=seed or None, allow_shared=allow_shared)
    document = found.to_json()
    if as_json:
        json_document(document)
    else:
        line(f"{document['request']}: {document['workload']}, {found.device.label}")
        time = document["median_ms"]
        said = "not timed: emulated" if time is None else f"median {time * 1e3:.2f} µs"
        line(f"{found.status}: {document['reason'] or 'nothing wrong found'} ({said})")
    return ExitCode.OK if found.status == "ok" else ExitCode.VERIFICATION


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(check)
