"""Print what a report holds as JSON, through NVIDIA's module `ncu_report`: a program of its own.

`python extract.py REPORT OUTPUT`. The module is native code that trusts its input; a damaged report may crash
it or make it ask for all memory, so that it never runs inside the console. Exit codes: 0 done, 3 the module
can't be imported, 4 it can't read the report (the reason is on stderr). Imports nothing of warpdeck.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

_MEMORY = 8 << 30  # bytes of address space; the largest reports take a fraction of it
_NO_MODULE, _UNREADABLE = 3, 4
_SAMPLES = "smsp__pcsamp_sample_count"
_STALLS = "smsp__pcsamp_warps_issue_stalled_"
_EXECUTED = "inst_executed"


def main(report: str, output: str) -> int:
    """Write the launches of `report` into `output`; returns the exit code."""
    _limit_memory()
    try:
        import ncu_report
    except ImportError as error:
        print(error, file=sys.stderr)
        return _NO_MODULE
    try:
        context = ncu_report.load_report(report)  # pyright: ignore[reportCallIssue] - bound by decoration
        launches = [
            _launch(action)
            for i in range(context.num_ranges())
            for action in _actions(context.range_by_idx(i))
        ]
        Path(output).write_text(json.dumps({"launches": launches}))
    except Exception as error:  # noqa: BLE001 - the module raises what its native code threw
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return _UNREADABLE
    return 0


def _actions(profiled: Any) -> list[Any]:
    return [profiled.action_by_idx(i) for i in range(profiled.num_actions())]


def _launch(action: Any) -> dict[str, Any]:
    names = sorted(action.metric_names())
    base = _base(action)
    return {
        "kernel": action.name(action.NameBase_DEMANGLED),
        "mangled": action.name(action.NameBase_MANGLED),
        "metrics": {name: _value(action.metric_by_name(name)) for name in names if ":" not in name},
        "base": base,
        "instructions": _instructions(action, names),
        "sources": dict(action.source_files().items()),
    }


def _value(metric: Any) -> list[Any]:
    """[value or None, unit]; a number that is not finite is a text, since JSON has none."""
    value = metric.value() if metric.has_value() else None
    if isinstance(value, float) and value - value != 0.0:
        value = str(value)
    return [value, metric.unit()]


def _by_pc(action: Any, name: str) -> dict[int, int]:
    """A counter's value by program counter; {} where it was not read by instruction."""
    metric = action.metric_by_name(name)
    if metric is None or not metric.has_correlation_ids():
        return {}
    counters = metric.correlation_ids()
    return {counters.as_uint64(i): metric.as_uint64(i) for i in range(metric.num_instances())}


def _base(action: Any) -> int:
    """Where the kernel's code starts."""
    metric = action.metric_by_name("launch__function_pcs")
    starts = [metric.as_uint64(i) for i in range(metric.num_instances())] if metric is not None else []
    return min(starts, default=0)


def _instructions(action: Any, names: list[str]) -> list[dict[str, Any]]:
    """Every instruction that was sampled or executed."""
    samples, executed = _by_pc(action, _SAMPLES), _by_pc(action, _EXECUTED)
    stalls = {
        name.removeprefix(_STALLS): _by_pc(action, name)
        for name in names
        if name.startswith(_STALLS) and not name.endswith("_not_issued")
    }
    rows = []
    for pc in sorted({*samples, *executed}):
        source = action.source_info(pc)
        rows.append(
            {
                "pc": pc,
                "sass": action.sass_by_pc(pc),
                "ptx": action.ptx_by_pc(pc),
                "file": source.file_name() if source is not None else "",
                "line": source.line() if source is not None else 0,
                "samples": samples.get(pc, 0),
                "executed": executed.get(pc, 0),
                "stalls": {reason: by_pc[pc] for reason, by_pc in stalls.items() if by_pc.get(pc)},
            }
        )
    return rows


def _limit_memory() -> None:
    try:
        import resource
    except ImportError:  # not a POSIX system
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY if hard < 0 else min(_MEMORY, hard), hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
