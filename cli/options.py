"""Options that several commands share, each declared once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ..core.errors import UsageError
from . import names
from .output import stdout_is_terminal

MAX_SECONDS = 86_400  # of any time limit; more than a day is a mistake

Workload = Annotated[
    str,
    typer.Argument(
        metavar="WORKLOAD",
        help="A bundled workload's name, or a workload's folder.",
        autocompletion=names.workloads,
    ),
]
Device = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="DEVICE",
        help="auto (a CUDA GPU, else the recording), cuda:N, recorded:NAME or recorded:FILE.",
        autocompletion=names.devices,
    ),
]
Space = Annotated[str, typer.Option("--space", metavar="NAME", help="Search space: classic or full.")]
KnobSpace = Annotated[
    str | None, typer.Option("--space", metavar="NAME", help="Search space that --knob names values of.")
]
Variant = Annotated[
    str | None,
    typer.Option(
        "--variant", metavar="V", help="A variant's name, or another source file for the same task."
    ),
]
Size = Annotated[int | None, typer.Option("--size", metavar="N", min=1, help="Problem size. [default: 1024]")]
Sizes = Annotated[
    list[int] | None,
    typer.Option(
        "--size", metavar="N", help="Problem size, a performance case each; repeatable. [default: 1024]"
    ),
]
Cache = Annotated[
    str, typer.Option("--cache", metavar="cold|hot", help="State of the L2 cache before each timed launch.")
]
Samples = Annotated[int, typer.Option("--samples", metavar="N", min=3, help="Timed launches, at most.")]
Warmup = Annotated[int, typer.Option("--warmup", metavar="N", min=0, help="Untimed launches first.")]
Seed = Annotated[
    int, typer.Option("--seed", metavar="N", min=0, max=2**32 - 1, help="Of everything drawn at random.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
ReferenceLimit = Annotated[
    float | None,
    typer.Option(
        "--reference-limit",
        metavar="S",
        min=0.1,
        max=MAX_SECONDS,
        help="Seconds that the reference may take for one draw of a case. [the workload's, else 300; 120 in a"
        " sandbox]",
    ),
]
AllowShared = Annotated[
    bool,
    typer.Option("--allow-shared", help="Measure although other processes use the GPU; labels the results."),
]
Knobs = Annotated[list[str] | None, typer.Option("--knob", metavar="K=V", help="A knob's value; repeatable.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]
Theme = Annotated[
    str | None,
    typer.Option(
        "--theme",
        metavar="NAME",
        help="Dashboard: dark, light, high-contrast, colour-blind. [the settings']",
    ),
]
ReadOnly = Annotated[
    bool,
    typer.Option("--readonly", help="Dashboard: refuse everything that changes a run, a session or a file."),
]

PROFILES = (".ncu-rep", ".counters.json.gz", ".counters.json")  # Nsight Compute's reports, and our profiles


def pairs(texts: Sequence[str] | None, option: str = "--knob") -> dict[str, str]:
    """`["A=1", "B=2"]` as a mapping; several pairs may be joined with commas. UsageError if malformed."""
    found: dict[str, str] = {}
    for text in texts or ():
        for part in text.split(","):
            name, equals, value = part.partition("=")
            if not equals or not name.strip() or not value.strip():
                raise UsageError(f"{option} {text!r}: write NAME=VALUE, as in {option} block_size=128")
            if name.strip() in found:
                raise UsageError(f"{option} {name.strip()} is given twice")
            found[name.strip()] = value.strip()
    return found


def writable(file: Path | None, option: str) -> None:
    """Refuse a file that can't be written before the work that it is for. UsageError says why."""
    if file is None:
        return
    if file.is_dir():
        raise UsageError(f"{option} {file}: is a folder; give a file's name")
    if not file.parent.is_dir():
        raise UsageError(f"{option} {file}: there is no folder {file.parent}")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise UsageError(f"{option} {file}: can't be written")


def writable_folder(folder: Path | None, option: str) -> None:
    """The same for a folder to write into, which may have to be made first."""
    if folder is None:
        return
    there = next((path for path in (folder, *folder.absolute().parents) if path.exists()), folder)
    if not there.is_dir():
        raise UsageError(f"{option} {folder}: {there} is no folder")
    if not os.access(there, os.W_OK):
        raise UsageError(f"{option} {folder}: can't be written")


def screen(show: bool, as_json: bool) -> None:
    """Refuse --show where no screen can be opened. UsageError says why."""
    if show and as_json:
        raise UsageError("--show opens a screen, --json prints a document: choose one")
    if show and not stdout_is_terminal():
        raise UsageError("--show needs a terminal")


def dashboard(theme: str | None = None, *, readonly: bool = False, mouse: bool = True) -> None:
    """What the dashboard's options say; the settings' file says the rest. UsageError for an unknown theme."""
    if theme is not None or readonly or not mouse:
        from .. import tui

        tui.configure(theme=theme, readonly=readonly, mouse=mouse)


def whole(option: str, text: str, word: str) -> int:
    """A positive whole number where a word could stand too. UsageError if it is neither."""
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"{option} {text!r}: give a number of at least 1, or {word}")
    return int(text)


def choice(option: str, value: str, allowed: Sequence[str]) -> str:
    """`value`, if allowed. UsageError names what is."""
    if value not in allowed:
        raise UsageError(f"{option} {value!r}: use {' or '.join(allowed)}")
    return value
