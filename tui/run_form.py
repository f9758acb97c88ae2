"""What a new run is asked for: its fields, what is wrong with each, and the command that starts the same.

`fault` looks at one field without opening anything, as it is typed; `check` is what the run itself would be
refused for, and may take a while.
"""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..agents import registry
from ..agents.llm.settings import EFFORTS, STRATEGIES, LlmSettings
from ..core.errors import UsageError
from ..core.expr import near
from ..core.recording import SUFFIX
from ..kernels.loader import list_workloads
from ..kernels.recordings import recording_files
from ..sessions import dotenv, launch
from ..sessions.budgets import ALL_STEPS, DEFAULT_AGENT, steps_of
from ..sessions.planning import CACHES, plan
from ..sessions.spec import RunSpec

MAX_SECONDS = 86_400  # of a time limit; more than a day is a mistake
MOST_SIZE = 1 << 31
SOURCES = ("llm", "ladder")  # agents that run sources, which no recording can
Values = Mapping[str, str]


@dataclass(frozen=True)
class Field:
    """One line of the form. `option`: of the command line; `choices`: empty where any text may stand;
    `default`: what it begins with, or stands for where it is empty; `agents`: that have it, empty for all."""

    name: str
    label: str
    option: str
    choices: tuple[str, ...] = ()
    default: str = ""
    agents: tuple[str, ...] = ()


FIELDS = (
    Field("workload", "workload", "", default="softmax"),
    Field("agent", "agent", "--agent", tuple(registry.AGENTS), DEFAULT_AGENT),
    Field("device", "device", "--device", default="auto"),
    Field("sizes", "sizes", "--size"),
    Field("steps", "steps", "--steps"),
    Field("time_limit", "time limit", "--time-limit"),
    Field("cache", "L2 cache", "--cache", tuple(str(cache) for cache in CACHES), "cold"),
    Field("seed", "seed", "--seed", default="0"),
    Field("model", "model", "--model", default=LlmSettings.model, agents=("llm",)),
    Field("strategy", "strategy", "--strategy", STRATEGIES, "linear", agents=("llm",)),
    Field("effort", "effort", "--reasoning-effort", EFFORTS, "medium", agents=("llm",)),
    Field("max_tokens", "most tokens", "--max-tokens", agents=("llm",)),
)
BY_NAME = {field.name: field for field in FIELDS}


def defaults() -> dict[str, str]:
    """What the form begins with."""
    return {field.name: field.default for field in FIELDS}


def shown(values: Values) -> list[Field]:
    """The fields that the chosen agent has."""
    return [field for field in FIELDS if not field.agents or values["agent"] in field.agents]


def devices() -> list[str]:
    """What may be typed as a device, without opening any."""
    names = sorted({file.name.split("-", 1)[0] for file in recording_files() if file.name.endswith(SUFFIX)})
    return ["auto", "cuda:0", "cpu", *(f"recorded:{name}" for name in names)]


def fault(name: str, values: Values) -> str:
    """Why a field can't be so; "" if nothing speaks against it yet."""
    try:
        _PARSE[name](values[name].strip(), values)
    except UsageError as error:
        return str(error)
    return ""


def hint(name: str, values: Values) -> str:
    """What a field that is right stands for."""
    text, agent = values[name].strip(), values["agent"]
    match name:
        case "workload":
            return "bundled, or a folder with workload.toml"
        case "agent":
            return registry.AGENTS[agent].summary
        case "device":
            return _DEVICE_WORDS.get(
                text, "times as recorded" if text.startswith("recorded:") else "this GPU"
            )
        case "sizes":
            return "each is a case" if text else "the workload's own"
        case "steps":
            return "evaluations, failures included" if text else f"default: {_steps_words(agent)}"
        case "time_limit":
            return "seconds; then the search ends" if text else "none"
        case "cache":
            return "before each timed launch"
        case "seed":
            return "of everything the run draws"
        case "strategy":
            return "one line of attempts" if text == "linear" else "several kernels side by side"
        case "max_tokens":
            return "input and output of the whole run" if text else "no limit"
        case "model":
            return f"at {LlmSettings().url()}"
        case _:
            return "how long it may think"


_DEVICE_WORDS = {
    "auto": "a CUDA GPU, else the recording",
    "cpu": "emulation: right or wrong, no times",
}


def _steps_words(agent: str) -> str:
    usual = steps_of(agent)
    return "all there are" if usual == ALL_STEPS else str(usual)


# Each field: its text to its value. UsageError says what is wrong, in few words.


def _whole(least: int, most: int = ALL_STEPS) -> Callable[[str, Values], int | None]:
    def parse(text: str, values: Values) -> int | None:
        if not text:
            return None
        if not re.fullmatch(r"[0-9]{1,20}", text):
            raise UsageError("a whole number")
        if not least <= int(text) <= most:
            raise UsageError(f"at least {least}" if int(text) < least else f"at most {most}")
        return int(text)

    return parse


def _workload(text: str, values: Values) -> str | None:
    if not text:
        if values["device"].startswith("recorded:") and values["agent"] not in SOURCES:
            return None  # the recording may know only one
        raise UsageError("which one?")
    if "/" in text or Path(text).is_dir():
        folder = Path(text).expanduser()
        if not (folder / "workload.toml").is_file() and folder.name != "workload.toml":
            raise UsageError("no workload.toml there")
        return str(folder)
    if text not in list_workloads():
        raise UsageError(f"unknown; {near(text, list_workloads())}")
    return text


def _choice(name: str) -> Callable[[str, Values], str]:
    def parse(text: str, values: Values) -> str:
        if text not in BY_NAME[name].choices:
            raise UsageError(f"use {', '.join(BY_NAME[name].choices)}")
        return text

    return parse


def _device(text: str, values: Values) -> str:
    if text in ("auto", "cpu") or re.fullmatch(r"cuda(:\d{1,3})?", text):
        return text
    if not text.startswith("recorded:"):
        raise UsageError("use auto, cuda:N, cpu or recorded:NAME")
    if values["agent"] in SOURCES:
        raise UsageError(f"{values['agent']} runs sources, a recording can't: cuda:0 or cpu")
    name = text.removeprefix("recorded:")
    if "/" in name or name.endswith((".json", ".gz")):
        if not Path(name).expanduser().is_file():
            raise UsageError("no such file")
    elif text not in devices():
        known = [device.removeprefix("recorded:") for device in devices() if ":" in device[4:]]
        raise UsageError(f"no such recording; {near(name, known)}")
    return text


def _sizes(text: str, values: Values) -> tuple[int, ...]:
    found = []
    for part in re.split(r"[\s,]+", text) if text else ():
        if part and not (part.isascii() and part.isdecimal() and 0 < int(part[:20]) <= MOST_SIZE):
            raise UsageError("whole numbers: 1024 4096")
        if part:
            found.append(int(part))
    if len(set(found)) < len(found):
        raise UsageError("a size is given twice")
    return tuple(found)


def _seconds(text: str, values: Values) -> float | None:
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        raise UsageError("seconds, as in 90") from None
    if not (math.isfinite(seconds) and 0 < seconds <= MAX_SECONDS):
        raise UsageError(f"more than 0, at most {MAX_SECONDS}")
    return seconds


def _model(text: str, values: Values) -> str:
    if not text:
        raise UsageError("which one?")
    if not text.isprintable() or len(text) > 200:
        raise UsageError("not a model's name")
    return text


_PARSE: Mapping[str, Callable[[str, Values], Any]] = {
    "workload": _workload,
    "agent": _choice("agent"),
    "device": _device,
    "sizes": _sizes,
    "steps": _whole(1),
    "time_limit": _seconds,
    "cache": _choice("cache"),
    "seed": lambda text, values: _whole(0, 2**63 - 1)(text, values) or 0,
    "model": _model,
    "strategy": _choice("strategy"),
    "effort": _choice("effort"),
    "max_tokens": _whole(1, 10**12),
}


def faults(values: Values) -> dict[str, str]:
    """Every field that can't be so, and why."""
    found = {field.name: fault(field.name, values) for field in shown(values)}
    return {name: why for name, why in found.items() if why}


def spec_of(values: Values) -> RunSpec:
    """The run that the form describes, as `warpdeck tune` makes it. UsageError for what can't be."""
    value = {field.name: _PARSE[field.name](values[field.name].strip(), values) for field in shown(values)}
    options = {
        name: value[name]
        for name in ("model", "strategy", "effort", "max_tokens")
        if value.get(name) is not None and str(value[name]) != BY_NAME[name].default
    }
    return plan(
        value["workload"],
        value["agent"],
        device=value["device"],
        sizes=value["sizes"],
        steps=value["steps"],
        cache=None if value["cache"] == BY_NAME["cache"].default else value["cache"],
        options=options,
        time_limit_s=value["time_limit"],
        seed=value["seed"],
    )


def check(values: Values) -> RunSpec:
    """The run, refused for everything that `launch_run` would refuse before it opens a device, and for a GPU
    that isn't there. Raises UsageError."""
    if values["agent"] == "llm":
        dotenv.load(os.environ, Path(".env"))
    spec = spec_of(values)
    launch.check(spec)
    if spec.device.startswith("cuda"):
        from ..telemetry import nvml

        if nvml.device_count() == 0:
            raise UsageError(f"{spec.device}: no CUDA GPU here; use auto, recorded:NAME or cpu")
    return spec


def command(values: Values) -> str:
    """What starts the same run in a shell; fields at their default are left out."""
    parts = ["warpdeck", "tune"]
    for field in shown(values):
        text = values[field.name].strip()
        if field.name == "workload":
            parts += [text] if text else []
        elif field.name == "sizes":
            parts += [word for size in re.split(r"[\s,]+", text) if size for word in ("--size", size)]
        elif text and text != field.default:
            parts += [field.option, text]
    return shlex.join(parts)
