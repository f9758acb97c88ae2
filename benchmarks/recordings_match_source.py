"""Whether the recordings that ship were measured on the machine code that the sources give today.

    python benchmarks/recordings_match_source.py [PATTERN…] [--restamp] [--since REVISION] [--workers N]

Compiles every configuration of every recording (or of those whose file name contains a PATTERN) for the
compute capability it was measured on, and compares the hash of the machine code, constants, registers and
launch parameters with the one that the recording keeps for it. Prints Markdown; exit code 1 if any differs.

A recording also keeps a hash of its source text, and a device that replays it says so where the text has
changed since. Where a change leaves all machine code as it was (stage markers, which are taken out before
anything is compiled), `--restamp` writes the present text's hash: only if every configuration of every
chosen recording agrees, and with nothing else in the file touched.

All of this compiles some 1,700 configurations, half a second of a CPU or more for each. `--since REVISION`
asks less: whether the recordings name the texts as they were at that revision, and `make` and all in it has
the same Python byte code now, line numbers aside, once the markers are out. Byte code is all that Numba sees
of a source, so the machine code then is the same for every configuration, whatever the compilers' versions.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any

from warpdeck.core import recording as recordings
from warpdeck.core.model import Candidate, Status
from warpdeck.core.recording import Entry, Recording
from warpdeck.core.toolchain import Compiled, CompileError, CompilePool
from warpdeck.core.toolchain.requests import candidate_request
from warpdeck.core.toolchain.sources import toolchain_versions
from warpdeck.core.workload import Workload
from warpdeck.kernels.loader import BUNDLED, load_workload, source_hash
from warpdeck.telemetry.trace.markers import strip

COMPILERS = ("numba", "numba-cuda", "nvidia-nvjitlink")


@dataclass
class Outcome:
    """How a recording's configurations compare with the source."""

    path: Path
    recording: Recording
    workload: Workload
    equal: int = 0
    unknown: int = 0  # no machine code was recorded
    different: list[str] = field(default_factory=list)

    @property
    def agrees(self) -> bool:
        """Whether every configuration has the recorded machine code."""
        return not self.different and not self.unknown

    @property
    def hashes(self) -> tuple[str, str]:
        """Of today's source texts: the variant's and the baseline's."""
        variants = self.workload.variants
        found = self.recording
        return variants[found.variant].source_hash, variants[found.baseline_variant].source_hash

    @property
    def stamped(self) -> bool:
        """Whether the recording names today's texts."""
        return self.hashes == (self.recording.source_hash, self.recording.baseline_hash)


def entries(found: Recording) -> Iterator[tuple[str, Entry]]:
    """Everything in a recording that was compiled, with its variant."""
    yield from (
        (found.variant, entry) for entry in found.entries.values() if entry.status != Status.RESTRICTED
    )
    yield found.baseline_variant, found.baseline


def compare(paths: Sequence[Path], workers: int | None) -> list[Outcome]:
    """Compile and compare; each configuration once, however many recordings have it."""
    outcomes = []
    jobs: dict[tuple[str, str, tuple[int, int], str], Future[Compiled]] = {}
    wanted: list[tuple[Outcome, Entry, Future[Compiled]]] = []
    with CompilePool(workers) as pool:
        for path in paths:
            found = recordings.load(path)
            outcome = Outcome(path, found, load_workload(found.workload))
            outcomes.append(outcome)
            capability = found.device.compute_capability
            if capability is None:
                sys.exit(f"{path}: it doesn't say for which compute capability it was compiled")
            for name, entry in entries(found):
                variant = outcome.workload.variant(name)
                key = (found.workload, name, capability, json.dumps(dict(entry.config), sort_keys=True))
                if key not in jobs:
                    candidate = Candidate(name, dict(entry.config), variant.source_hash)
                    jobs[key] = pool.submit_request(
                        candidate_request(outcome.workload, candidate, capability)
                    )
                wanted.append((outcome, entry, jobs[key]))
        for number, future in enumerate(jobs.values(), 1):
            future.exception()
            if number % 50 == 0 or number == len(jobs):
                print(f"{number} of {len(jobs)} compiled", file=sys.stderr, flush=True)
        for outcome, entry, future in wanted:
            _judge(outcome, entry, future)
    return outcomes


def _judge(outcome: Outcome, entry: Entry, future: Future[Compiled]) -> None:
    recorded = entry.resources.code_hash if entry.resources else None
    try:
        now = future.result().code_hash
    except CompileError as error:
        if entry.status == Status.COMPILE_ERROR:
            outcome.equal += 1
        else:
            outcome.different.append(f"{dict(entry.config)}: {error}")
        return
    if not recorded:
        outcome.unknown += 1
    elif recorded == now:
        outcome.equal += 1
    else:
        outcome.different.append(f"{dict(entry.config)}: {recorded} recorded, {now} now")


def compare_since(revision: str, paths: Sequence[Path]) -> list[Outcome]:
    """Compare the byte code of each recording's sources with that at a revision; nothing is compiled."""
    outcomes = []
    for path in paths:
        found = recordings.load(path)
        outcome = Outcome(path, found, load_workload(found.workload))
        outcomes.append(outcome)
        reasons = []
        sources = {found.variant: found.source_hash, found.baseline_variant: found.baseline_hash}
        for name, recorded in sources.items():
            file = outcome.workload.variant(name).file
            old = text_at(revision, file)
            if old_hash(file, old) != recorded:
                reasons.append(f"it wasn't measured with {file.name} as of {revision}")
            elif byte_code(old, file) != byte_code(file.read_text(encoding="utf-8"), file):
                reasons.append(f"{file.name} has other byte code than at {revision}")
        total = len(list(entries(found)))
        if reasons:
            outcome.different = reasons * total
        else:
            outcome.equal = total
    return outcomes


def text_at(revision: str, file: Path) -> str:
    """A file's text at a git revision."""
    shown = subprocess.run(
        ["git", "show", f"{revision}:./{file.name}"], cwd=file.parent, capture_output=True, text=True
    )
    if shown.returncode:
        sys.exit(f"{file} at {revision}: {shown.stderr.strip()}")
    return shown.stdout


def old_hash(file: Path, text: str) -> str:
    """A recording's hash of an earlier text of a file."""
    with tempfile.TemporaryDirectory() as folder:
        earlier = Path(folder) / file.name
        earlier.write_text(text, encoding="utf-8")
        return source_hash(earlier)


def byte_code(text: str, file: Path) -> Any:
    """What Numba can see of `make` and of the functions in it."""
    tree = ast.parse(text, str(file))
    strip(tree, str(file))
    module = compile(tree, str(file), "exec", dont_inherit=True)
    return next(plain(c) for c in module.co_consts if isinstance(c, CodeType) and c.co_name == "make")


def plain(code: CodeType) -> Any:
    """A code object's content without its line numbers."""
    constants = [plain(c) if isinstance(c, CodeType) else (type(c), repr(c)) for c in code.co_consts]
    names = (code.co_name, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    return (names, code.co_argcount, code.co_flags, code.co_code, constants)


def restamp(outcome: Outcome) -> None:
    """Write today's source hashes into a recording's file; everything else stays as it is."""
    document = recordings.read_json(outcome.path)
    meta = document["metadata"]["warpdeck"]
    meta["source_hash"], meta["baseline"]["source_hash"] = outcome.hashes
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    recordings.save_bytes(text.encode(), outcome.path, packed=True)


def table(outcomes: Sequence[Outcome]) -> str:
    """The comparison, as Markdown."""
    lines = ["| recording | configurations | same machine code | different | not recorded | source text |"]
    lines.append("|---|--:|--:|--:|--:|---|")
    for o in outcomes:
        total = o.equal + len(o.different) + o.unknown
        name = o.path.name.removesuffix(recordings.SUFFIX)
        text = "as recorded" if o.stamped else "changed"
        lines.append(f"| {name} | {total} | {o.equal} | {len(o.different)} | {o.unknown} | {text} |")
    return "\n".join(lines)


def main() -> int:
    """Compare, print, perhaps restamp."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pattern", nargs="*")
    parser.add_argument("--restamp", action="store_true")
    parser.add_argument("--since", metavar="REVISION")
    parser.add_argument("--workers", type=int)
    options = parser.parse_args()
    paths = [
        path
        for path in sorted(BUNDLED.rglob(f"*{recordings.SUFFIX}"))
        if not options.pattern or any(text in path.name for text in options.pattern)
    ]
    if not paths:
        sys.exit("no recording's file name contains any of these")
    if options.since:
        outcomes = compare_since(options.since, paths)
        print(f"By the byte code of the sources at {options.since}; nothing was compiled.")
    else:
        outcomes = compare(paths, options.workers)
        here = toolchain_versions()
        for compiler in COMPILERS:
            there = sorted({str(o.recording.versions.get(compiler)) for o in outcomes})
            print(f"{compiler}: {', '.join(there)} recorded, {here.get(compiler)} here")
    print(f"\n{table(outcomes)}")
    for outcome in outcomes:
        for line in outcome.different[:3]:
            print(f"\n{outcome.path.name}: {line}", end="")
    print()
    if not all(outcome.agrees for outcome in outcomes):
        if options.restamp:
            print(
                "nothing was restamped: not every configuration has the recorded machine code",
                file=sys.stderr,
            )
        return 1
    if options.restamp:
        changed = [outcome for outcome in outcomes if not outcome.stamped]
        for outcome in changed:
            restamp(outcome)
        print(f"restamped: {len(changed)} of {len(outcomes)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
