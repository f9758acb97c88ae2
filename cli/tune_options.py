"""What `tune` takes beside the options of every command: the LLM agent's, a workload's parts, `--config`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from ..core.errors import UsageError
from ..core.expr import near
from ..sessions.budgets import DEFAULT_AGENT
from . import names

PARTS = ("description", "signature", "reference", "initial_kernel", "input_cases")
# The LLM agent's settings by their names here; the others are the agent's own.
LLM_FLAGS = {
    "model": "model",
    "base_url": "base_url",
    "reasoning_effort": "effort",
    "strategy": "strategy",
    "parents": "parents",
    "ideas": "ideas",
    "max_tokens": "max_tokens",
    "max_cost": "max_cost",
    "stagnation": "stagnation",
    "target": "target",
    "counters": "counters",
    "research": "research",
    "docs": "docs",
}
LLM_CONFIG = ("api", "prices", "answer_tokens", "request_timeout_s", "retries", "drafts")  # only in --config
WITH_RESUME = (
    *("resume", "steps", "time_limit", "headless", "as_json", "as_jsonl"),
    *("workload", "session", "source"),  # refused by their own message
)
NOT_IN_CONFIG = ("context", "return", "config", "resume", "show_graph", "as_json", "as_jsonl", "headless")

Agent = Annotated[
    str | None,
    typer.Option(
        "--agent",
        metavar="NAME",
        help="Search strategy: tpe, random, sweep, ppo; ladder or llm for CUDA C++ sources. [tpe; llm with"
        " --description or a model's option]",
        autocompletion=names.agents,
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(
        "--steps",
        "--max-iterations",
        metavar="N",
        min=1,
        help="Evaluations, failures included. [100; llm: 10; sweep and ladder: all]",
    ),
]
Model = Annotated[str | None, typer.Option("--model", metavar="NAME", help="llm: the model. [gpt-5-mini]")]
BaseUrl = Annotated[
    str | None,
    typer.Option(
        "--base-url",
        metavar="URL",
        help="llm: an OpenAI-compatible server. [$OPENAI_BASE_URL, else OpenAI; the key: $OPENAI_API_KEY]",
    ),
]
Effort = Annotated[
    str | None,
    typer.Option(
        "--reasoning-effort",
        metavar="EFFORT",
        help="llm: none, minimal, low, medium, high, xhigh or max. [medium]",
    ),
]
Strategy = Annotated[
    str | None,
    typer.Option("--strategy", metavar="linear|beam", help="llm: one line of attempts, or several. [linear]"),
]
Parents = Annotated[
    int | None,
    typer.Option("--parents", metavar="N", min=1, help="llm, beam: kernels developed further. [2]"),
]
Ideas = Annotated[
    int | None, typer.Option("--ideas", metavar="N", min=1, help="llm, beam: ideas for each parent. [2]")
]
MaxTokens = Annotated[
    int | None, typer.Option("--max-tokens", metavar="N", min=1, help="llm: stop after this many tokens.")
]
MaxCost = Annotated[
    float | None,
    typer.Option(
        "--max-cost",
        metavar="USD",
        min=0,
        help="llm: stop after this much money; needs `prices` in --config.",
    ),
]
Stagnation = Annotated[
    int | None,
    typer.Option(
        "--stagnation", metavar="N", min=0, help="llm: stop after N attempts without a win; 0: never. [5]"
    ),
]
Target = Annotated[
    float | None,
    typer.Option(
        "--target", metavar="SHARE", min=0, max=1, help="llm: stop at this share of the physical floor."
    ),
]
CountersFlag = Annotated[
    bool,
    typer.Option(
        "--counters",
        "--use-nsight",
        help="llm: profile each valid candidate with Nsight Compute, and show the model its counters.",
    ),
]
Research = Annotated[
    bool,
    typer.Option(
        "--research",
        "--nvidia-research",
        help="llm: also the provider's web search, limited to NVIDIA's documentation.",
    ),
]
Docs = Annotated[
    list[Path] | None,
    typer.Option("--docs", metavar="PATH", help="llm: a file or folder the model may search; repeatable."),
]
ShowGraph = Annotated[
    bool, typer.Option("--show-graph", help="Print the LLM agent's state machine as Mermaid, and exit.")
]
AllowUnsandboxed = Annotated[
    bool,
    typer.Option(
        "--allow-unsandboxed",
        help="Run a model's host code (references) although no sandbox works here; labels the results.",
    ),
]
Description = Annotated[
    str | None,
    typer.Option("--description", metavar="TEXT", help="Instead of WORKLOAD: what the kernel computes."),
]
SignatureFile = Annotated[
    Path | None,
    typer.Option("--signature", metavar="FILE", help="Its prototype, with extents, or JSON."),
]
Reference = Annotated[
    Path | None,
    typer.Option("--reference", metavar="FILE.py", help="The right result: NumPy or PyTorch code."),
]
InitialKernel = Annotated[
    Path | None,
    typer.Option("--initial-kernel", metavar="FILE.cu", help="The kernel to begin with, CUDA C++."),
]
InputCases = Annotated[
    Path | None,
    typer.Option("--input-cases", metavar="FILE.json", help="The inputs it is tried on."),
]
WorkloadDir = Annotated[
    Path | None,
    typer.Option(
        "--workload-dir",
        metavar="FOLDER",
        help="Where the workload made of such parts goes. [the session's folder]",
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE.json", help="Options by their names, and parts of a workload; flags win."
    ),
]


def settled(context: typer.Context, command: Callable[..., Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Every option's value by its parameter's name, with those of a `--config` file where no flag gave one.

    Args:
        context: of the command that was parsed.
        command: its function, whose annotations say what each option takes.

    Returns:
        the values, and what the file holds, by its own (normalised) keys.

    Raises:
        UsageError: the file can't be read, isn't JSON, or has an unknown key or an impossible value.
    """
    values = dict(context.params)
    if values["resume"] is not None:
        _refuse_changes(context)
    file: Path | None = values["config"]
    if file is None:
        return values, {}
    from ..kernels.parts import EXTRA, read_json

    document = read_json(file, "--config")
    if not isinstance(document, dict):
        raise UsageError(f"--config {file}: must hold one JSON object")
    config = {str(key).lstrip("-").replace("-", "_"): value for key, value in document.items()}
    known = _options(command)
    for key, value in config.items():
        if key in (*PARTS, *EXTRA, *LLM_CONFIG) or value is None:
            continue
        if key not in known:
            keys = sorted({*known, *PARTS, *EXTRA, *LLM_CONFIG})
            raise UsageError(f"--config {file}: unknown key '{key}'; {near(key, keys)}")
        name, kind, option = known[key]
        source = context.get_parameter_source(name)
        if source is not None and source.name != "COMMANDLINE":
            values[name] = _converted(kind, option, value, f"--config {file}: {key}")
    return values, config


def _options(command: Callable[..., Any]) -> dict[str, tuple[str, Any, Any]]:
    """Parameter, type and declaration of each option by its names, as a file writes them."""
    found = {}
    for name, annotation in get_type_hints(command, include_extras=True).items():
        kind, *rest = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
        option = rest[0] if rest else None
        if name in NOT_IN_CONFIG or option is None:
            continue
        for declared in (*(getattr(option, "param_decls", None) or ()), name):
            found[declared.lstrip("-").replace("-", "_")] = (name, kind, option)
    return found


def _refuse_changes(context: typer.Context) -> None:
    """A resumed run has its settings: an option that would be ignored, such as another budget, is refused."""
    for parameter in context.command.params:
        source = context.get_parameter_source(str(parameter.name))
        given = source is not None and source.name == "COMMANDLINE"
        if given and parameter.name not in WITH_RESUME:
            raise UsageError(
                "--resume goes on as the session was started, with a larger --steps or --time-limit at most:"
                f" leave {parameter.opts[0]} out, or begin a new run with --from {context.params['resume']}"
            )


def _converted(kind: Any, option: Any, value: Any, where: str) -> Any:
    """A value of the file in the option's type and range. Raises UsageError."""
    kinds = [k for k in (get_args(kind) or (kind,)) if k is not type(None)]
    if get_origin(kind) is list or any(get_origin(k) is list for k in kinds):
        (item,) = get_args(kind if get_origin(kind) is list else kinds[0])
        return [_one(item, option, row, where) for row in (value if isinstance(value, list) else [value])]
    return _one(kinds[0], option, value, where)


def _one(kind: Any, option: Any, value: Any, where: str) -> Any:
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", Path: "a path"}
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if kind is Path and isinstance(value, str):
        value = Path(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise UsageError(f"{where} must be {words[kind]}, not {value!r}")
    least, most = getattr(option, "min", None), getattr(option, "max", None)
    if (least is not None and value < least) or (most is not None and value > most):
        limits = f"at least {least:g}" if most is None else f"between {least:g} and {most:g}"
        raise UsageError(f"{where} must be {limits}, not {value}")
    return value


def _was_given(value: Any) -> bool:
    """Whether an option has a value; 0 is one."""
    return value is not None and value is not False and value not in ([], ())


def agent_of(values: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """The agent that was named, else the one that the other options are for."""
    if values["agent"]:
        return values["agent"]
    asked = [*PARTS, *LLM_FLAGS]
    given = any(_was_given(values.get(key)) or _was_given(config.get(key)) for key in asked)
    return "llm" if given else DEFAULT_AGENT


def llm_options(agent: str, values: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The LLM agent's settings that were given.

    Raises UsageError: they are for another agent, or a document isn't there.
    """
    found = {name: values[flag] for flag, name in LLM_FLAGS.items() if _was_given(values[flag])}
    found |= {key: config[key] for key in LLM_CONFIG if config.get(key) is not None}
    if found and agent != "llm":
        flag = next((f for f, name in LLM_FLAGS.items() if name in found), next(iter(found)))
        raise UsageError(f"--{flag.replace('_', '-')} is for --agent llm, not {agent}")
    if "docs" in found:
        from ..agents.llm.documents import refuse

        for path in found["docs"]:
            refuse(path)
        found["docs"] = [str(path.absolute()) for path in found["docs"]]
    return found
