"""`check`: correctness only."""

from __future__ import annotations

from typing import Annotated

import typer

from ..core.errors import ExitCode
from . import options
from .output import json_document, line, table


def check(
    workload: options.Workload,
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
    seed: options.Seed = 0,
    allow_shared: options.AllowShared = False,
    as_json: options.Json = False,
) -> int:
    """Check a kernel against its reference: all its cases, derived ones, and its knobs' values.

    With --sanitize each tool of compute-sanitizer is one more line: what it found, and where. Exit code 0
    only if everything is right, else 5.
    """
    from ..core.verify import verify
    from ..kernels.loader import load_workload
    from ..kernels.recordings import open_device
    from ..sessions.contenders import implementation

    loaded = load_workload(workload)
    implemented, chosen = implementation(loaded, variant, space)
    opened = open_device(device, allow_shared=allow_shared)
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
        json_document(found.to_json())
    else:
        line(f"{found.workload}, variant {found.variant}, {found.device.label}")
        table(
            ["case", "role", "status", "largest error", "reason"],
            [
                (c.case, c.role, c.status, None if c.max_error is None else f"{c.max_error:.3g}", c.reason)
                for c in found.cases
            ],
            right=(3,),
        )
        line()
        when = " when they were recorded" if found.device.recorded else ""
        checked = f"{found.configs} configuration(s) checked{when}"
        if found.config is not None:
            checked += "; the last failed: " + " ".join(f"{k}={v}" for k, v in found.config.items())
        line(f"{found.status}: {found.reason or 'nothing wrong found'} ({checked})")
    return ExitCode.OK if found.ok else ExitCode.VERIFICATION


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(check)
