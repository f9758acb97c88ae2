"""The cheats of `tests/cheats`, and how any device judges them: as sources that come during a run."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from warpdeck.core.bench import Bench
from warpdeck.core.devices import Device
from warpdeck.core.model import Candidate, Config, Evaluation, Protocol, Trust
from warpdeck.core.workload import LaunchSpec, Variant
from warpdeck.kernels import load_workload

FOLDER = Path(__file__).with_name("cheats")
BRIEF = Protocol(warmup=3, samples=30, min_samples=30, adaptive=False)


@dataclass(frozen=True)
class Cheat:
    """One cheat and its end, by device (`cpu`, `gpu`): a status, and a pattern of the message."""

    file: Path
    workload: str
    launch: LaunchSpec
    status: Mapping[str, str]
    reason: Mapping[str, str]

    @property
    def name(self) -> str:
        return self.file.stem


@cache
def cheats() -> tuple[Cheat, ...]:
    """All of them, in the table's order."""
    table = tomllib.loads((FOLDER / "table.toml").read_text(encoding="utf-8"))
    return tuple(_cheat(row, table["launch"][row["workload"]]) for row in table["cheat"])


def _cheat(row: Mapping[str, Any], launch: Mapping[str, Any]) -> Cheat:
    grid, block = row.get("grid", launch["grid"]), row.get("block", launch["block"])
    status = row.get("status", "incorrect")
    return Cheat(
        FOLDER / row["file"],
        row["workload"],
        LaunchSpec("cheat", tuple(grid), tuple(block), row.get("shared", "0")),
        {device: row.get(f"{device}_status", status) for device in ("cpu", "gpu")},
        {device: row.get(f"{device}_reason", row["reason"]) for device in ("cpu", "gpu")},
    )


def proposed(
    file: Path, launches: tuple[LaunchSpec, ...], *, name: str = "", trust: Trust = Trust.GENERATED
) -> Variant:
    """A source as an agent gives it to the bench."""
    digest = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    entry = launches[0].entry
    return Variant(name or f"try-{file.stem}", file, "cuda", entry, launches, digest, trust=trust)


def bench(device: Device, workload: str, size: int, *, seed: int = 0) -> Bench:
    """A bench on one size; its baseline is the ladder's lowest rung."""
    loaded = load_workload(workload)
    case = loaded.size_case(size)
    return Bench(loaded, device, space="ladder", cases=[case], protocol=BRIEF, seed=seed)


def evaluated(bench: Bench, cheat: Cheat) -> Evaluation:
    """What the bench makes of a cheat."""
    return bench.evaluate(bench.add_variant(proposed(cheat.file, (cheat.launch,))))


def misjudged(cheat: Cheat, evaluation: Evaluation, device: str) -> str | None:
    """What is wrong with a verdict (`device`: cpu or gpu); None if it is the expected one."""
    wanted, pattern = cheat.status[device], cheat.reason[device]
    if str(evaluation.status) == wanted and re.search(pattern, evaluation.message):
        return None
    return f"{evaluation.status}: {evaluation.message!r}; expected {wanted}: {pattern!r}"


def baked(variant: Variant, config: Config, folder: Path) -> Variant:
    """A copy of a variant with its knobs built in, as generated code; its launches mustn't need the knobs'
    names, so they are replaced by their values."""
    file = folder / f"{variant.name}-{hashlib.sha256(repr(config).encode()).hexdigest()[:8]}.cu"
    knobs = {k: v for k, v in config.items() if k != "reg_cap"}
    defines = "".join(f"#define {knob} {value}\n" for knob, value in knobs.items())
    file.write_text(defines + variant.source(), encoding="utf-8")
    names = {knob: str(value) for knob, value in knobs.items()}

    def filled(texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_filled(text, names) for text in texts)

    launches = tuple(
        LaunchSpec(x.entry, filled(x.grid), filled(x.block), _filled(x.shared, names))
        for x in variant.launches
    )
    return proposed(file, launches, name=f"try-{file.stem}")


def _filled(text: str, names: Mapping[str, str]) -> str:
    return re.sub(r"[A-Za-z_]\w*", lambda found: names.get(found[0], found[0]), text)


def honest(bench: Bench, folder: Path) -> Iterator[tuple[Variant, Candidate]]:
    """Every rung of the workload's ladder in its first configuration, as generated code."""
    for rung in bench.workload.ladder():
        config = bench.workload.space_of(rung.name).first
        yield rung, bench.add_variant(baked(rung, config, folder))
