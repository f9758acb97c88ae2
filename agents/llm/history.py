"""What was tried: the attempts of a run, the best so far, and what of it fits into a prompt."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...core.model import Config, Evaluation, Launch, Status
from ...core.ranking import identity
from ...core.workload import LaunchSpec

MENDABLE = frozenset(
    {
        Status.COMPILE_ERROR,
        Status.LAUNCH_ERROR,
        Status.RUNTIME_ERROR,
        Status.OUT_OF_MEMORY,
        Status.TIMEOUT,
        Status.INCORRECT,
        Status.UNSUPPORTED,
    }
)  # failures that another version of the same idea may not have
MAX_LEVEL = 6  # of condensation; 0: everything
DETAILED = 6  # attempts that are told in full at level 0


@dataclass(frozen=True)
class Attempt:
    """One proposal and what became of it.

    Attributes:
        number: from 1; the initial kernel is an attempt too.
        parent: the attempt it was developed from.
        idea: in one sentence; the model's own words.
        summary: the model's reasons.
        variant: its name on the bench; "" if there was nothing to evaluate.
        candidate: the candidate's id; None as `variant`.
        source: path below the session's folder; None as `variant`.
        text: the source.
        config: knobs, of the workload's own variants; what a model writes has none.
        launches: as `core.model.Variant` has them; `case_launches` too.
        repairs: the failed attempt that it repairs.
        kept: whether it became the best; None until it is judged.
        verdict: against the best: win, tie, loss; None where nothing was compared.
        reason: why it was kept or not, for people and the model.
        diagnosis: what its hardware counters say.
        round: beam: the first attempt of its round.
        turn: the number that its requests to the model are logged under; None: its own.
        draft: the model had it evaluated within that turn, before its answer.
        evaluation: None until it was evaluated, and where there was nothing to evaluate.
    """

    number: int
    parent: int | None = None
    idea: str = ""
    summary: str = ""
    variant: str = ""
    candidate: str | None = None
    source: str | None = None
    text: str = ""
    config: Config = field(default_factory=dict)
    launches: tuple[LaunchSpec, ...] = ()
    case_launches: Mapping[str, tuple[LaunchSpec, ...]] = field(default_factory=dict)
    repairs: int | None = None
    kept: bool | None = None
    verdict: str | None = None
    reason: str = ""
    diagnosis: tuple[str, ...] = ()
    round: int | None = None
    turn: int | None = None
    draft: bool = False
    evaluation: Evaluation | None = None

    @property
    def status(self) -> str:
        """The evaluation's status; `no proposal` where there was nothing to evaluate."""
        if self.evaluation is not None:
            return str(self.evaluation.status)
        return "not evaluated yet" if self.variant else "no proposal"

    @property
    def score_ms(self) -> float | None:
        """Geometric mean over the cases, if it was timed."""
        return self.evaluation.score_ms if self.evaluation else None

    @property
    def ok(self) -> bool:
        """Whether it is correct (and, where the device times, was timed)."""
        return self.evaluation is not None and self.evaluation.status is Status.OK

    def to_json(self, resolved: Mapping[str, Sequence[Launch]] | None = None) -> dict[str, Any]:
        """The `attempt` event; `resolved`: its launches by performance case."""
        return {
            "attempt": self.number,
            "parent": self.parent,
            "idea": self.idea,
            "summary": self.summary,
            "variant": self.variant,
            "candidate": self.candidate,
            "source": self.source,
            "config": dict(self.config),
            "launches": {
                case: [
                    {"entry": x.entry, "grid": list(x.grid), "block": list(x.block), "shared": x.shared}
                    for x in found
                ]
                for case, found in (resolved or {}).items()
            },
            "launch_specs": launches_json(self.launches),
            "case_launch_specs": {case: launches_json(specs) for case, specs in self.case_launches.items()},
            "repairs": self.repairs,
            "kept": self.kept,
            "verdict": self.verdict,
            "reason": self.reason,
            "diagnosis": list(self.diagnosis),
            "round": self.round,
            "turn": self.turn,
            "draft": self.draft,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], folder: Path) -> Attempt:
        """Inverse of `to_json`; the source is read from the session's folder, and empty if it is gone."""
        source = data.get("source")
        try:
            text = (folder / source).read_text(encoding="utf-8") if source else ""
        except (OSError, UnicodeDecodeError):
            text = ""
        return cls(
            number=int(data["attempt"]),
            parent=data.get("parent"),
            idea=data.get("idea") or "",
            summary=data.get("summary") or "",
            variant=data.get("variant") or "",
            candidate=data.get("candidate"),
            source=source,
            text=text,
            config=dict(data.get("config") or {}),
            launches=launches_of(data.get("launch_specs") or ()),
            case_launches={k: launches_of(v) for k, v in (data.get("case_launch_specs") or {}).items()},
            repairs=data.get("repairs"),
            kept=data.get("kept"),
            verdict=data.get("verdict"),
            reason=data.get("reason") or "",
            diagnosis=tuple(data.get("diagnosis") or ()),
            round=data.get("round"),
            turn=data.get("turn"),
            draft=bool(data.get("draft")),
        )


def launches_json(launches: Iterable[LaunchSpec]) -> list[dict[str, Any]]:
    """Launches as a proposal has them."""
    return [
        {"entry": s.entry, "grid": list(s.grid), "block": list(s.block), "shared": s.shared} for s in launches
    ]


def launches_of(rows: Iterable[Mapping[str, Any]]) -> tuple[LaunchSpec, ...]:
    """Inverse of `launches_json`."""
    return tuple(
        LaunchSpec(str(r["entry"]), tuple(r["grid"]), tuple(r["block"]), str(r.get("shared", "0")))
        for r in rows
    )


def past_attempts(past: Iterable[tuple[str, Mapping[str, Any]]], folder: Path) -> dict[int, Attempt]:
    """The attempts that an interrupted run told, by number, as it told them last."""
    found = {}
    for kind, data in past:
        if kind == "attempt":
            attempt = Attempt.from_json(data, folder)
            found[attempt.number] = attempt
    return dict(sorted(found.items()))


class History:
    """The attempts in order, and the best of them."""

    def __init__(self) -> None:
        self._attempts: dict[int, Attempt] = {}
        self.best: Attempt | None = None

    def __iter__(self) -> Iterator[Attempt]:
        return iter(self._attempts.values())

    def __len__(self) -> int:
        return len(self._attempts)

    def get(self, number: int | None) -> Attempt | None:
        """The attempt with this number."""
        return None if number is None else self._attempts.get(number)

    @property
    def last(self) -> Attempt | None:
        """The attempt with the highest number."""
        return self._attempts[max(self._attempts)] if self._attempts else None

    def put(self, attempt: Attempt) -> None:
        """Add an attempt, or what became of it."""
        # A new one: the model's turns may be reading the old one.
        self._attempts = dict(sorted({**self._attempts, attempt.number: attempt}.items()))
        if attempt.kept:
            self.best = attempt

    def since_win(self) -> int:
        """Judged attempts after the last that was kept."""
        judged = [a for a in self if a.kept is not None]
        return next((i for i, a in enumerate(reversed(judged)) if a.kept), len(judged))

    def without_proposal(self) -> int:
        """How many of the last attempts in a row brought nothing to evaluate."""
        return next((i for i, a in enumerate(reversed(list(self))) if a.variant), len(self))

    def repairs_of(self, attempt: Attempt) -> int:
        """How many repairs led to this attempt."""
        count, current = 0, attempt
        while current.repairs is not None and current.repairs in self._attempts:
            count, current = count + 1, self._attempts[current.repairs]
        return count

    def mendable(self, limit: int, *, before: float = math.inf) -> list[Attempt]:
        """The failed attempts that nothing has repaired yet and that were repaired fewer than `limit` times
        on their way; the model has answered to what became of its drafts. Only those numbered below `before`,
        and as things were before it."""
        known = [a for a in self if a.number < before]
        tried = {a.repairs for a in known}
        judged = [a for a in known if a.kept is not None and a.number not in tried and not a.draft]
        failed = [a for a in judged if a.evaluation is not None and a.evaluation.status in MENDABLE]
        return [a for a in failed if self.repairs_of(a) < limit]

    def parents(self, count: int, *, before: int) -> list[Attempt]:
        """The best `count` attempts with different machine code, best first; the latest first where the
        device doesn't time. Only those numbered below `before`."""
        worked = [a for a in self if a.ok and a.kept is not None and a.number < before]
        worked.sort(key=lambda a: (a.score_ms if a.score_ms is not None else -a.number, -a.number))
        best = next((a for a in reversed(list(self)) if a.kept and a.number < before), None)
        if best is not None:  # screening times of other moments don't overrule a paired comparison
            worked = [best, *(a for a in worked if a is not best)]
        chosen: dict[Any, Attempt] = {}
        for a in worked:
            if a.evaluation is not None:
                chosen.setdefault(identity(a.evaluation), a)
        return list(chosen.values())[:count]

    def answered(self, turn: int) -> bool:
        """Whether a turn has brought its answer, or failed to."""
        return any(not a.draft and (a.turn or a.number) == turn for a in self)

    def drafts(self, turn: int) -> int:
        """How many drafts of a turn were evaluated, or are."""
        return sum(a.draft and a.turn == turn for a in self)

    def unanswered(self) -> Attempt | None:
        """A draft of a turn that was interrupted."""
        return next((a for a in self if a.draft and a.turn is not None and not self.answered(a.turn)), None)

    def same(self, text: str, launches: object, case_launches: object) -> Attempt | None:
        """The attempt with this source and these launches."""
        for a in self:
            if a.variant and (a.text, a.launches, dict(a.case_launches)) == (text, launches, case_launches):
                return a
        return None

    def told(self, level: int, *, but: Iterable[int] = ()) -> list[str]:
        """The attempts in words, oldest first, more briefly the higher the level of condensation.

        Level 0 tells the latest 6 in full and one line of each other; each further level halves how many
        are told in full, then how many are told at all.
        """
        hidden = set(but)
        attempts = [a for a in self if a.number not in hidden]
        full = DETAILED >> level
        kept = len(attempts) if level < 3 else max(len(attempts) >> (level - 2), 1)
        left = attempts[len(attempts) - kept :]
        lines = []
        if len(left) < len(attempts):
            lines.append(f"({len(attempts) - len(left)} earlier attempts left out)")
        for i, a in enumerate(left):
            lines.append(self._in_full(a) if i >= len(left) - full else one_line(a))
        return lines

    def _in_full(self, attempt: Attempt) -> str:
        lines = [one_line(attempt)]
        if attempt.summary:
            lines.append(f"  reasons: {attempt.summary}")
        lines += [f"  {line}" for line in outcome(attempt)]
        return "\n".join(lines)


_FOLDERS = re.compile(r"(?<![\w/])/(?:[^\s/:'\"]+/)+(?=attempt-\d+\.cu\b)")


def _plain(text: str) -> str:
    """Without the folders of this machine before an attempt's file: they are nobody else's business."""
    return _FOLDERS.sub("", text)


def one_line(attempt: Attempt) -> str:
    """An attempt's number, idea and outcome."""
    origin = f" (repairs {attempt.repairs})" if attempt.repairs else ""
    if not attempt.repairs and attempt.parent:
        origin = f" (from {attempt.parent})"
    time = f", {microseconds(attempt.score_ms)}" if attempt.score_ms is not None else ""
    result = f"{attempt.status}{time}"
    if attempt.kept:
        result += ", kept"
    elif attempt.reason:
        result += f": {_plain(attempt.reason.removeprefix(f'{attempt.status}: ')).splitlines()[0][:200]}"
    idea = " ".join(attempt.idea.split())[:200]
    return f"attempt {attempt.number}{origin}: {idea or 'no idea given'} -> {result}"


def outcome(attempt: Attempt) -> list[str]:
    """What the evaluation said beyond its status: the failure's message, or times, resources, counters."""
    evaluation = attempt.evaluation
    if evaluation is None:
        return []
    lines = []
    if evaluation.status is not Status.OK:
        lines += [line for line in evaluation.message.splitlines()[:12] if line.strip()]
        failed = [c for c in evaluation.checks if c.status is not Status.OK]
        lines += [f"case {c.case}: {c.reason}" for c in failed if c.reason not in evaluation.message][:3]
    for measured in evaluation.measurements:
        lines.append(f"case {measured.case}: {microseconds(measured.median_ms)}")
    resources = evaluation.resources
    if resources is not None:
        text = f"{resources.registers} registers, {resources.shared_bytes} B static shared memory"
        if resources.spill_bytes:
            text += f", {resources.spill_bytes} B spilled"
        if resources.occupancy is not None:
            text += f", occupancy {resources.occupancy:.0%} (limited by {resources.limiter})"
        lines.append(text)
    lines += list(attempt.diagnosis)
    return list(dict.fromkeys(map(_plain, lines)))


def microseconds(ms: float | None) -> str:
    """A time for people."""
    return "not timed" if ms is None else f"{ms * 1e3:.4g} µs"
