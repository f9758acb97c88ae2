"""`occupancy`: how many blocks of a kernel an SM holds, what stops one more, and what that would need."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ..core.errors import ExitCode, UsageError
from . import options
from .output import json_document, line, table

DEFAULT_THREADS = 256


def occupancy(
    workload: Annotated[
        str | None,
        typer.Argument(
            metavar="WORKLOAD",
            help="A bundled workload's name, or a folder: its kernel is compiled. Else give --registers.",
        ),
    ] = None,
    cc: Annotated[
        str | None,
        typer.Option(
            "--cc", metavar="X.Y", help="Compute capability. [default: this machine's GPU, else 9.0]"
        ),
    ] = None,
    registers: Annotated[
        int | None, typer.Option("--registers", metavar="N", min=0, max=255, help="Registers a thread.")
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option("--threads", metavar="N", min=1, max=1024, help="Threads a block. [default: 256]"),
    ] = None,
    shared: Annotated[
        int | None,
        typer.Option("--shared", metavar="BYTES", min=0, help="Shared memory a block. [default: 0]"),
    ] = None,
    barriers: Annotated[
        int | None,
        typer.Option("--barriers", metavar="N", min=0, help="Named barriers a block. [default: 0]"),
    ] = None,
    knob: options.Knobs = None,
    variant: options.Variant = None,
    space: options.KnobSpace = None,
    size: options.Size = None,
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="DEVICE", help="A recorded device: take the numbers from there."),
    ] = None,
    as_json: options.Json = False,
) -> int:
    """How many blocks fit on an SM, what limits them, and what the next step would need.

    Of a workload's kernel, compiled here without a GPU, or of given --registers, --threads and --shared.
    """
    from ..sessions import fitting

    given = {"--registers": registers, "--threads": threads, "--shared": shared, "--barriers": barriers}
    if workload is None:
        if knob or variant or space or size or device:
            raise UsageError("--knob, --variant, --space, --size and --device need a WORKLOAD")
        if registers is None:
            raise UsageError("name a WORKLOAD, or give --registers (and --threads, --shared)")
        target = fitting.parse_cc(cc) if cc else fitting.local_cc()
        found = fitting.numbers(target, registers, threads or DEFAULT_THREADS, shared or 0, barriers or 0)
    else:
        wrong = [name for name, value in given.items() if value is not None]
        if wrong:
            raise UsageError(f"{', '.join(wrong)}: the compiler gives these for a WORKLOAD; leave them out")
        found = fitting.of_workload(
            workload,
            device=device,
            cc=fitting.parse_cc(cc) if cc else None,
            knobs=options.pairs(knob),
            variant=variant,
            space=space,
            size=size,
        )
    if as_json:
        json_document(found)
    else:
        _show(found)
    return ExitCode.OK


def _show(found: dict[str, Any]) -> None:
    if "workload" in found:
        config = " ".join(f"{k}={v}" for k, v in found["config"].items())
        line(f"{found['workload']}, {found['variant']} {config}, case {found['case']}")
        if found["device"]:
            line(f"  numbers from {found['device']}")
    shared = found["static_shared"] + found["dynamic_shared"]
    line(
        f"compute capability {found['compute_capability']}: {found['registers']} registers a thread,"
        f" {found['threads']} threads and {shared} bytes of shared memory a block"
    )
    line()
    line(
        f"occupancy  {found['occupancy'] * 100:.4g}%: {found['blocks']} block{'s' * (found['blocks'] != 1)},"
        f" {found['warps']} of {found['sm']['warps']} warps an SM"
    )
    if found["blocks"] == 0:
        line(f"           the launch fails: {found['limiter']}")
    else:
        allowed = ", ".join(
            f"{name} {'any number' if count is None else count}" for name, count in found["limits"].items()
        )
        line(f"limited by {found['limiter']} (blocks that each allows: {allowed})")
    for step in found["next"]:
        line(f"next step  {step['text']}")
    if not found["next"]:
        line("next step  none: every warp slot is filled")
    line()
    table(
        ["threads", "blocks", "warps", "occupancy", "limited by"],
        [
            (
                f"{row['threads']}{' *' if row['threads'] == found['threads'] else ''}",
                str(row["blocks"]),
                str(row["warps"]),
                f"{row['occupancy'] * 100:.4g}%",
                row["limiter"],
            )
            for row in found["table"]
        ],
        right=(0, 1, 2, 3),
    )


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(occupancy)
