"""Programs that stand in for `ncu` and `compute-sanitizer` on a machine without a GPU.

They print what the real ones print and read the profiled program's specification, as that program would.
"""

from __future__ import annotations

import sys
from pathlib import Path

DATA = Path(__file__).parent / "data" / "ncu"

# `behave(spec, number, report, options)` is the test's; `number` counts the starts.
_SCRIPT = """#!{python}
import json, os, pathlib, shutil, subprocess, sys, time
arguments = sys.argv[1:]
if "--version" in arguments:
    print("NVIDIA (R) Nsight Compute Command Line Profiler")
    print("Version 2025.3.1.0 (build 36398880) (public-release)")
    sys.exit(0)
log = pathlib.Path({log!r})
number = len(log.read_text().splitlines()) if log.exists() else 0
with log.open("a") as file:
    file.write(json.dumps({{"arguments": arguments, "environment": dict(os.environ)}}) + "\\n")
spec = {{}}
if arguments[-1].endswith("spec.json"):  # as the program waits for it
    while not os.path.exists(arguments[-1]):
        time.sleep(0.005)
    spec = json.loads(pathlib.Path(arguments[-1]).read_text())
report = arguments[arguments.index("--export") + 1] if "--export" in arguments else None

def mark(items, complete=True, fault=None):
    fault = fault and {{"status": "unsupported", "message": fault}}
    text = json.dumps({{"complete": complete, "items": items, "fault": fault}})
    pathlib.Path(spec["marker"]).write_text(text)

def ok(item):
    return {{"status": "ok", "message": "", "launched": [launch[0] for launch in item["launches"]]}}

def begin(number):
    pathlib.Path(spec["progress"]).write_text(str(number))

def write(name="three_full.ncu-rep"):
    shutil.copy({data!r} + "/" + name, report)

{body}
"""


def install(path: Path, body: str) -> Path:
    """Write an executable whose `body` decides what happens; returns the log of its starts."""
    log = path.with_suffix(".starts")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_SCRIPT.format(python=sys.executable, log=str(log), data=str(DATA), body=body))
    path.chmod(0o755)
    return log
