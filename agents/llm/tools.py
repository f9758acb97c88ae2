"""What the model may call while it thinks. Nothing here evaluates, writes, or costs an attempt; what
the device can't give isn't offered."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...core.errors import NoDeviceError, WarpdeckError
from .client import Tool
from .documents import Documents
from .history import Attempt, History, one_line, outcome
from .inspection import Inspector
from .prompts import quoted
from .settings import LlmSettings

if TYPE_CHECKING:
    from ...core.bench import Bench

MAX_RESULT = 12_000  # characters
MAX_LINES = 200  # of machine code in one answer
_ENTRY = re.compile(r"[A-Za-z_]\w*\Z")

Arguments = Mapping[str, Any]


class Toolbox:
    """The tools of one run.

    Args:
        bench: whose device says what can be had.
        settings: which documents are searched.
        history: the attempts that the tools are about.
        inspector: does the looking.

    Raises UsageError for a document that can't be read.
    """

    def __init__(self, bench: Bench, settings: LlmSettings, history: History, inspector: Inspector) -> None:
        self._bench = bench
        self._history = history
        self._inspector = inspector
        self._documents = Documents(settings.docs)

    @property
    def problems(self) -> list[str]:
        """Documents that were left out, and why."""
        return self._documents.problems

    def tools(self) -> list[Tool]:
        """Those that work here."""
        inspector = self._inspector
        attempt = {"attempt": {"type": "integer", "description": "number of an attempt"}}
        documents = self._documents.tool()
        names = [case.name for case in self._bench.cases]
        case = {"case": {"type": "string", "enum": names}}
        found = [
            self._tool(
                "show_attempt",
                "An earlier attempt: its source, its difference from another attempt, or its outcome.",
                {
                    **attempt,
                    "what": {"type": "string", "enum": ["source", "difference", "outcome"]},
                    "other": {
                        "type": ["integer", "null"],
                        "description": "for a difference; null: its parent",
                    },
                },
                self._show,
            ),
            replace(documents, run=lambda arguments: quoted("DOCUMENTS", documents.run(arguments))),
        ]
        if inspector.compiles:
            found += [
                self._tool(
                    "compile",
                    "Compile a draft without evaluating it: registers, spills and shared memory of its"
                    " kernels, or the compiler's errors.",
                    {
                        "source": {"type": "string"},
                        "entries": {"type": "array", "items": {"type": "string"}, "minItems": 1},
                    },
                    self._compile,
                ),
                self._tool(
                    "resources",
                    "Registers, spills, shared memory and occupancy of an attempt's kernels.",
                    attempt,
                    lambda a: inspector.resources(self._attempt(a)),
                ),
                self._tool(
                    "machine_code",
                    "Lines of an attempt's PTX or SASS.",
                    {
                        **attempt,
                        "kind": {"type": "string", "enum": ["ptx", "sass"]},
                        "kernel": {"type": "string", "description": "of SASS; empty: all"},
                        "contains": {
                            "type": "string",
                            "description": "only lines with this text; empty: all",
                        },
                        "first": {"type": "integer", "description": "from this one on, counted from 1"},
                        "count": {"type": "integer", "description": f"how many, at most {MAX_LINES}"},
                    },
                    self._code,
                ),
            ]
        if inspector.live:
            found += [
                self._tool(
                    "sanitize",
                    "Run an attempt under compute-sanitizer: out-of-bounds accesses, races, uninitialised"
                    " memory, barrier errors.",
                    attempt,
                    lambda a: inspector.sanitize(self._attempt(a)),
                ),
                self._tool(
                    "timeline",
                    "Where the warps' time goes, stage by stage, in an attempt whose source has stage"
                    " markers.",
                    {**attempt, **case},
                    lambda a: inspector.timeline(self._valid(a), a["case"]),
                ),
            ]
        if inspector.counters:
            found.append(
                self._tool(
                    "counters",
                    "Hardware counters of a valid attempt in words: what limits it, stalls, the hottest"
                    " lines.",
                    {**attempt, **case},
                    lambda a: inspector.profile(self._valid(a), a["case"]),
                )
            )
        return found

    def _tool(
        self, name: str, description: str, properties: Mapping[str, Any], run: Callable[[Arguments], str]
    ) -> Tool:
        parameters = {
            "type": "object",
            "properties": dict(properties),
            "required": list(properties),
            "additionalProperties": False,
        }

        def bounded(arguments: Arguments) -> str:
            try:
                text = run(arguments)
            except NoDeviceError:
                raise
            except (WarpdeckError, ValueError) as error:
                text = f"{name} failed: {error}"
            if len(text) > MAX_RESULT:
                text = f"{text[:MAX_RESULT]}\n… ({len(text) - MAX_RESULT:,} more characters)"
            return quoted(name.upper(), text)

        return Tool(name, description, parameters, bounded)

    def _attempt(self, arguments: Arguments) -> Attempt:
        attempt = self._history.get(int(arguments["attempt"]))
        if attempt is None or not attempt.variant:
            known = ", ".join(str(a.number) for a in self._history if a.variant)
            raise ValueError(f"no attempt {arguments['attempt']} with a source; there are {known or 'none'}")
        return attempt

    def _valid(self, arguments: Arguments) -> Attempt:
        attempt = self._attempt(arguments)
        if not attempt.ok:
            raise ValueError(f"attempt {attempt.number} isn't valid: {attempt.status}")
        return attempt

    def _show(self, arguments: Arguments) -> str:
        attempt = self._attempt(arguments)
        if arguments["what"] == "source":
            return attempt.text
        if arguments["what"] == "outcome":
            return "\n".join([one_line(attempt), *outcome(attempt)])
        number = arguments.get("other") or attempt.repairs or attempt.parent
        other = self._history.get(number)
        if other is None or not other.variant:
            raise ValueError(f"attempt {attempt.number} has nothing to differ from; name another attempt")
        lines = difflib.unified_diff(
            other.text.splitlines(),
            attempt.text.splitlines(),
            f"attempt {other.number}",
            f"attempt {attempt.number}",
            lineterm="",
        )
        return "\n".join(lines) or "their sources are equal"

    def _compile(self, arguments: Arguments) -> str:
        entries = [str(entry) for entry in arguments["entries"]]
        bad = next((entry for entry in entries if not _ENTRY.match(entry)), None)
        if bad is not None or not entries:
            raise ValueError(f"entries must be names of kernels, not {bad!r}")
        return self._inspector.compile(str(arguments["source"]), entries)

    def _code(self, arguments: Arguments) -> str:
        return self._inspector.code(
            self._attempt(arguments),
            arguments["kind"],
            arguments["kernel"],
            arguments["contains"],
            int(arguments["first"]),
            min(max(int(arguments["count"]), 1), MAX_LINES),
        )
