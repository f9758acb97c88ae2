"""A kernel's source beside its machine code: where the samples fell, and what lines became. No Textual.

Compiling and disassembling take seconds; `load` runs in a thread.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from ..core.errors import UsageError, WarpdeckError
from ..sessions.words import one_line
from ..telemetry.ncu import hotspots
from ..telemetry.ncu.counters import Counters
from . import evidence
from .evidence import Subject
from .source_files import Sources, Version, named_workload, require_source

Place = tuple[str, int]  # a file's name without its folders, and a line of it, from 1
_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)\s")
_FILE = re.compile(r'\s*\.file\s+(\d+)\s+"([^"]*)"')
_NOISE = re.compile(r"\s*(\.loc|\.file|//|$)")
_SECTION = re.compile(r"\s*\.section")


@dataclass(frozen=True)
class Spot:
    """Samples at a line or an instruction. `share`: of the launch's, 0..1; `reason`: what most of its stalls
    wait for."""

    samples: int
    share: float
    reason: str = ""


@dataclass(frozen=True)
class Instruction:
    """A line of machine code or PTX. `label`: an address, or a jump's target with nothing after it."""

    label: str
    text: str
    place: Place | None = None
    spot: Spot | None = None
    heading: bool = False


@dataclass(frozen=True)
class Code:
    """What was found of a version. `why_*`: one line where there is none, or where it is another's."""

    sass: tuple[Instruction, ...] = ()
    ptx: tuple[Instruction, ...] = ()
    heat: Mapping[Place, Spot] = field(default_factory=dict)
    sampled: int = 0
    why_heat: str = ""
    why_code: str = ""
    title: str = ""


def base(file: str) -> str:
    """A file's name without its folders, whatever system wrote it."""
    return PurePath(file.replace("\\", "/")).name


def heat_of(counters: Counters) -> dict[Place, Spot]:
    """Samples by source line."""
    found = {}
    for line in hotspots.by_line(counters):
        if line.file and line.samples:
            top = line.top(1)
            reason = f"{top[0][0].replace('_', ' ')} {100 * top[0][1]:.0f}%" if top else ""
            found[(base(line.file), line.line)] = Spot(line.samples, line.share, reason)
    return found


def _spots(counters: Counters | None) -> dict[tuple[int, str], Spot]:
    """Samples by instruction: its address and its name (another build has other instructions there)."""
    if counters is None:
        return {}
    found = {}
    for spot in counters.hotspots:
        reasons = [(n, r) for r, n in spot.stalls.items() if r != hotspots.ISSUED and n]
        top = max(reasons, default=(0, ""))[1].replace("_", " ")
        found[(spot.address, opcode(spot.sass))] = Spot(spot.samples, hotspots.share(spot, counters), top)
    return found


def opcode(sass: str) -> str:
    """ "FMNMX.FTZ" of "@!P0 FMNMX.FTZ R0, …"."""
    words = [word for word in sass.split() if not word.startswith("@")]
    return words[0] if words else ""


def of_profile(counters: Counters) -> tuple[Instruction, ...]:
    """The instructions that a profile holds, in order: those that were sampled or executed."""
    spots = _spots(counters)
    return tuple(
        Instruction(
            f"{spot.address:05x}",
            one_line(spot.sass),
            (base(spot.file), spot.line) if spot.file and spot.line > 0 else None,
            spots.get((spot.address, opcode(spot.sass))) if spot.samples else None,
        )
        for spot in sorted(counters.hotspots, key=lambda spot: spot.address)
    )


def of_machine(instructions: Sequence[Any], counters: Counters | None) -> Iterator[Instruction]:
    """The disassembler's instructions, with the samples of a profile of the same code."""
    spots, kernel = _spots(counters), None
    for one in instructions:
        if one.kernel != kernel:
            kernel = one.kernel
            yield Instruction("", one_line(kernel), heading=True)
        if one.label:
            yield Instruction(one.label, "")
        place = (base(one.file), one.line) if one.file and one.line > 0 else None
        yield Instruction(
            f"{one.address:05x}", one_line(one.text), place, spots.get((one.address, opcode(one.text)))
        )


def of_ptx(text: str) -> Iterator[Instruction]:
    """Lines of PTX, with the source line that the last `.loc` before them names; without debug sections."""
    files: dict[str, str] = {number: base(name) for number, name in _FILE.findall(text)}
    place: Place | None = None
    for row in text.splitlines():
        if found := _LOC.match(row):
            name, line = files.get(found[1], ""), int(found[2])
            place = (name, line) if name and line > 0 else None
            continue
        if _SECTION.match(row):
            return
        if _NOISE.match(row):
            continue
        code = row.strip()
        if code.startswith((".version", ".target", ".address_size")):
            yield Instruction("", one_line(code), heading=True)
        elif code.endswith(":"):
            yield Instruction(one_line(code[:-1]), "")
        elif code in ("{", "}", "(", ")", ")") or code.startswith("."):
            yield Instruction("", one_line(row.rstrip().expandtabs(4)))
        else:
            yield Instruction("", one_line(row.rstrip().expandtabs(4)), place)


def load(sources: Sources, version: Version) -> Code:
    """All that is known of a version. Never fails: what is missing says why."""
    counters, why_heat = _profile(sources, version)
    heat = heat_of(counters) if counters is not None else {}
    sampled = hotspots.samples(counters) if counters is not None else 0
    if counters is not None and not heat:
        why_heat = "the profile has no samples by line; the metric sets stalls and full have them"
    try:
        code = _compiled(sources, version)
    except WarpdeckError as error:
        if counters is None or not counters.hotspots:
            return Code((), (), heat, sampled, why_heat, str(error))
        why = f"{error}; these are the profile's instructions"
        return Code(of_profile(counters), (), heat, sampled, why_heat, why)
    return Code(
        tuple(of_machine(code.instructions, counters)),
        tuple(of_ptx(code.compiled.ptx or "")),
        heat,
        sampled,
        why_heat,
        title=f"{code.compiled.resources.registers} registers · {code.title}",
    )


def _profile(sources: Sources, version: Version) -> tuple[Counters | None, str]:
    """Its profile, else one of another configuration of the same source, which is said."""
    if sources.device is None:
        return None, "no heat: the run has no device yet"
    size = int(sources.case) if sources.case.isdecimal() else None
    device = sources.device
    subject = Subject(
        sources.workload, version.variant, version.config, size, device.spec, device.recorded, sources.folder
    )
    try:
        found, note = evidence.find_counters(subject)
    except WarpdeckError as error:
        return None, f"no heat: {error}"
    if note and found.meta.get("variant") != version.variant:
        return None, f"no heat: {note.partition(';')[0]}; to make one: {subject.command('profile')}"
    words = [f"heat of another configuration: {note}"] if note else []
    if found.meta.get("stale"):
        words.append("the source has changed since this was profiled: lines may have moved")
    return found, "; ".join(words)


def _compiled(sources: Sources, version: Version) -> Any:
    from ..kernels.loader import load_workload
    from ..sessions.machine_code import generated_code, machine_code

    require_source(version)
    workload = named_workload(sources)
    device = sources.device
    cc = (device.compute_capability if device is not None else None) or (9, 0)
    if version.path is None:
        knobs = {name: str(value) for name, value in version.config.items()}
        size = int(sources.case) if sources.case.isdecimal() else None
        load_workload(workload).variant(version.variant)  # a name: the command would take a file, too
        return machine_code(workload, variant=version.variant, knobs=knobs, size=size, cc=cc, ptx=True)
    if sources.folder is None:
        raise UsageError(f"{version.title}: this run has no folder to read {version.path} from")
    root = sources.folder.resolve()
    file = (root / version.path).resolve()
    if not file.is_relative_to(root):
        raise UsageError(f"{version.path} is not below the session's folder; it is not compiled")
    launches = version.launches.get(sources.case) or next((x for x in version.launches.values() if x), [])
    return generated_code(workload, file, launches, cc)


def by_place(instructions: Sequence[Instruction]) -> dict[Place, list[int]]:
    """Which instructions a source line became."""
    found: dict[Place, list[int]] = defaultdict(list)
    for index, one in enumerate(instructions):
        if one.place is not None:
            found[one.place].append(index)
    return dict(found)
