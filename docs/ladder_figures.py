"""docs/ladder-figures.md from benchmarks/results/*-ladder.json: `python docs/ladder_figures.py` writes it.

A results file is what `benchmarks/ladder.py --json` wrote, named DATE-DEVICE-ladder.json. Without one the
page says how to measure.
"""

from __future__ import annotations

import json
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "ladder-figures.md"
NAME = re.compile(r"(\d{4}-\d\d-\d\d)-.*ladder\.json")
COMMAND = "python benchmarks/ladder.py"

HEAD = """<!-- Written by docs/ladder_figures.py from benchmarks/results/*-ladder.json: do not edit. -->

# Ladders, measured

Each rung's cold time with its 95% interval, beside the vendor's library, a copy that moves as many bytes
(where memory is the limit) and the physical floor. All of a table took turns in one process, so that they saw
one clock. *Of vendor*, *of copy* and *of floor* are shares of their speed: above 100% is faster. What the
rungs do: [Ladders](ladder.md).
"""

NOTHING = f"""
No results are here yet. On a CUDA GPU, in a clone:

```console
{COMMAND} --json benchmarks/results/DATE-DEVICE-ladder.json
python docs/ladder_figures.py
```
"""


def render(results: Path = RESULTS) -> str:
    """The whole page, the newest results first."""
    found = sorted((f for f in results.glob("*.json") if NAME.fullmatch(f.name)), reverse=True)
    return HEAD + ("".join(_section(file) for file in found) or NOTHING)


def _section(file: Path) -> str:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    table = import_module("ladder").table
    document = json.loads(file.read_text(encoding="utf-8"))
    device, dated = document["device"], NAME.fullmatch(file.name)
    date = document.get("date") or (dated[1] if dated else "date unknown")
    lines = [
        f"\n## {device['name']}, {date}\n",
        f"`{document.get('command', COMMAND)}`, clock {document['clock']}, driver {device['driver']};"
        f" every sample: `benchmarks/results/{file.name}`.\n",
    ]
    lines += [_table(found, table) for found in document["workloads"]]
    return "\n".join(lines)


def _table(found: dict[str, Any], table: Any) -> str:
    if "error" in found:
        return f"### {found['workload']}\n\nnot measured: {found['error']}\n"
    return table(found)


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
