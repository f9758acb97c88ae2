"""`sass`: the machine code of one configuration, beside its source."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..core.errors import ExitCode
from . import options
from .output import json_document, line


def sass(
    workload: options.Workload,
    variant: options.Variant = None,
    space: options.KnobSpace = None,
    knob: options.Knobs = None,
    size: options.Size = None,
    cc: Annotated[
        str, typer.Option("--cc", metavar="X.Y", help="Compute capability to compile for.")
    ] = "9.0",
    traced: Annotated[bool, typer.Option("--traced", help="With its stage markers on.")] = False,
    as_json: options.Json = False,
) -> int:
    """Compile a configuration and show its SASS, each instruction under its source line. Needs no GPU."""
    from ..sessions.fitting import parse_cc
    from ..sessions.machine_code import machine_code

    code = machine_code(
        workload,
        variant=variant,
        space=space,
        knobs=options.pairs(knob),
        size=size,
        cc=parse_cc(cc),
        traced=traced,
    )
    if as_json:
        json_document(code.to_json())
        return ExitCode.OK
    resources = code.compiled.resources
    line(f"{code.title}: {resources.registers} registers, {resources.spill_bytes} bytes spilled")
    place: tuple[str, int] = ("", 0)
    kernel = ""
    for instruction in code.instructions:
        if instruction.kernel != kernel:
            kernel, place = instruction.kernel, ("", 0)
            line(f"\n{kernel}")
        if (instruction.file, instruction.line) != place:
            place = instruction.file, instruction.line
            where = f"{Path(place[0]).name}:{place[1]}" if place[0] else "?"
            line(f"  {where}  {code.source(*place)}")
        if instruction.label:
            line(f"    {instruction.label}:")
        line(f"    {instruction.address:05x}  {instruction.text}")
    return ExitCode.OK


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(sass)
