"""`tune`, `attach` and `replay`: the main job, and looking at it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core.errors import UsageError
from ..sessions import dotenv
from . import names, options, quick
from . import tune_options as own
from .output import line, message, stdout_is_terminal
from .results import show_result
from .watching import Signals, watch

if TYPE_CHECKING:
    from ..kernels.parts import Parts
    from ..sessions.launch import Launched
    from ..sessions.spec import RunSpec

Session = Annotated[
    str,
    typer.Argument(
        metavar="SESSION",
        help="A session's name, a unique beginning of it, a path, or `last`.",
        autocompletion=names.sessions,
    ),
]


def tune(
    context: typer.Context,
    workload: Annotated[
        str | None,
        typer.Argument(
            metavar="WORKLOAD",
            help="A bundled workload's name, or a folder; may be left out where a recording, --from or"
            " --description say it.",
            autocompletion=names.workloads,
        ),
    ] = None,
    agent: own.Agent = None,
    device: Annotated[
        str,
        typer.Option(
            "--device",
            metavar="DEVICE",
            help="auto (a CUDA GPU, else the recording; for llm and ladder else cpu), cuda:N, recorded:NAME,"
            " recorded:FILE, or cpu (emulation: right or wrong, no times).",
            autocompletion=names.devices,
        ),
    ] = "auto",
    space: Annotated[
        str | None,
        typer.Option(
            "--space",
            metavar="NAME",
            help="Search space. [full; llm and ladder: ladder; an imported recording: its own]",
        ),
    ] = None,
    size: options.Sizes = None,
    steps: own.Steps = None,
    time_limit: Annotated[
        float | None,
        typer.Option("--time-limit", metavar="S", help="Seconds after which the run ends; exit code 4."),
    ] = None,
    cache: Annotated[
        str | None,
        typer.Option(
            "--cache",
            metavar="cold|hot",
            help="State of the L2 cache before each timed launch. [cold; an imported recording: as recorded]",
        ),
    ] = None,
    samples: options.Samples = 100,
    warmup: options.Warmup = 10,
    seed: options.Seed = 0,
    agent_option: Annotated[
        list[str] | None,
        typer.Option("--agent-option", metavar="K=V", help="A setting of the agent's own; repeatable."),
    ] = None,
    model: own.Model = None,
    base_url: own.BaseUrl = None,
    reasoning_effort: own.Effort = None,
    strategy: own.Strategy = None,
    parents: own.Parents = None,
    ideas: own.Ideas = None,
    max_tokens: own.MaxTokens = None,
    max_cost: own.MaxCost = None,
    stagnation: own.Stagnation = None,
    target: own.Target = None,
    counters: own.CountersFlag = False,
    research: own.Research = False,
    docs: own.Docs = None,
    show_graph: own.ShowGraph = False,
    reference_limit: options.ReferenceLimit = None,
    allow_unsandboxed: own.AllowUnsandboxed = False,
    description: own.Description = None,
    signature: own.SignatureFile = None,
    reference: own.Reference = None,
    initial_kernel: own.InitialKernel = None,
    input_cases: own.InputCases = None,
    workload_dir: own.WorkloadDir = None,
    config: own.Config = None,
    session: Annotated[
        str | None, typer.Option("--session", metavar="NAME", help="Name of the session. [default: made up]")
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            "--resume",
            metavar="SESSION",
            help="Go on with an interrupted or stopped run.",
            autocompletion=names.runs,
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="SESSION|FILE",
            help="Try what was best there first; llm: begin with its best kernel (or best.cu).",
        ),
    ] = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="At the end trace and profile the best and the baseline: why is it fast?"
        ),
    ] = False,
    headless: Annotated[bool, typer.Option("--headless", help="No dashboard, also on a terminal.")] = False,
    as_json: options.Json = False,
    as_jsonl: Annotated[
        bool, typer.Option("--jsonl", help="Stream the run's events, one JSON object a line.")
    ] = False,
    allow_shared: options.AllowShared = False,
) -> int:
    """Search for the fastest configuration of a workload, or with --agent llm for a faster kernel.

    On a terminal the dashboard opens; quitting it leaves the run going. Headless, Ctrl-C, SIGTERM and a
    hangup stop the run after the present evaluation. The session is kept either way.

    --agent ladder climbs a workload's CUDA C++ variants, --agent llm lets a model rewrite them (the extra
    llm; the key from OPENAI_API_KEY or `.env`). Instead of a WORKLOAD, --description and the parts that you
    have; what is missing is derived, or generated by the model.
    """
    from ..sessions import paths

    values, document = own.settled(context, tune)  # what was declared above, and --config
    if values["as_json"] and values["as_jsonl"]:
        raise UsageError("--json and --jsonl exclude each other")
    chosen = own.agent_of(values, document)
    if values["show_graph"]:
        return _show_graph(values, document)
    notice = paths.home().notice
    if notice:
        message(notice)
    if resume is not None and (workload is not None or session is not None or source is not None):
        raise UsageError("--resume goes on as the session was started: leave WORKLOAD, --session, --from out")
    if not stdout_is_terminal() or headless or as_json or as_jsonl:
        with Signals() as signals:
            launched, told = _launch(chosen, values, document, signals.hold)
            return watch(launched, signals, as_json=as_json, as_jsonl=as_jsonl, told=told)
    from .. import tui

    launched, _ = _launch(chosen, values, document)
    code = tui.run_live(launched.folder)
    _show_if_ended(launched)
    return code


def _show_graph(values: Mapping[str, Any], document: Mapping[str, Any]) -> int:
    from ..agents.llm.graph import mermaid
    from ..agents.llm.settings import LlmSettings

    line(mermaid(LlmSettings.from_options(own.llm_options("llm", values, document))).rstrip())
    return 0


def _launch(
    agent: str,
    values: Mapping[str, Any],
    document: Mapping[str, Any],
    starting: Callable[[], None] = lambda: None,
) -> tuple[Launched, int]:
    """Start the run that the options describe, or go on with one. Also what its log ended with before."""
    from ..sessions import paths
    from ..sessions.continuing import continued
    from ..sessions.launch import launch_run, resume_run
    from ..sessions.store import SessionStore

    if values["resume"] is not None:
        dotenv.load(os.environ, Path(".env"))
        folder = paths.resolve(values["resume"])
        with SessionStore.open(folder) as store:
            told = store.last_seq
        steps, limit = values["steps"], values["time_limit"]
        return resume_run(folder, steps=steps, time_limit_s=limit, starting=starting), told
    parts = _parts(values, document)
    spec = _spec(agent, values, document, parts=parts is not None)
    if agent == "llm":
        dotenv.load(os.environ, Path(".env"))
    if values["source"] is not None:
        spec, parts = continued(spec, values["source"], named=values["workload"] is not None)
    into = values["workload_dir"]
    return launch_run(spec, name=values["session"], parts=parts, into=into, starting=starting), 0


def _parts(values: Mapping[str, Any], document: Mapping[str, Any]) -> Parts | None:
    """The parts of a workload that were given instead of its name; None if it was named."""
    from ..kernels.assemble import require_describable
    from ..kernels.parts import read_parts

    parts = read_parts(
        **{key: values[key] for key in own.PARTS}, config=document, config_file=values["config"]
    )
    if not parts:
        if values["workload_dir"] is not None:
            raise UsageError("--workload-dir is for a workload made of parts, as --description gives them")
        return None
    for option in ("workload", "source"):
        if values[option] is not None:
            word = "WORKLOAD" if option == "workload" else "--from"
            raise UsageError(f"{word} names a workload, and --description, --reference… describe one: choose")
    require_describable(parts)
    options.writable_folder(values["workload_dir"], "--workload-dir")
    return parts


def _spec(agent: str, values: Mapping[str, Any], document: Mapping[str, Any], *, parts: bool) -> RunSpec:
    from ..sessions.planning import plan

    name, recorded = values["workload"], values["device"].startswith("recorded:")
    if name is None and (parts or (values["source"] is not None and not recorded)):
        name = ""  # the parts, or what --from names, say it
    return plan(
        name,
        agent,
        device=values["device"],
        space=values["space"],
        sizes=tuple(values["size"] or ()),
        steps=values["steps"],
        cache=values["cache"],
        options={
            **options.pairs(values["agent_option"], "--agent-option"),
            **own.llm_options(agent, values, document),
        },
        time_limit_s=values["time_limit"],
        samples=values["samples"],
        warmup=values["warmup"],
        seed=values["seed"],
        allow_shared=values["allow_shared"],
        explain=values["explain"],
        allow_unsandboxed=values["allow_unsandboxed"],
        reference_limit_s=values["reference_limit"],
    )


def _show_if_ended(launched: Launched) -> None:
    """What the dashboard showed last stays in the terminal's history."""
    from ..sessions.report import tune_document
    from ..sessions.store import SessionStore

    with SessionStore.open(launched.folder) as store:
        state = store.state()
        document = tune_document(store, state)
        if state.lifecycle.final and document["best"] is not None:
            show_result(document)


def attach(session: Session) -> int:
    """Join a run that goes on, or look at one that has ended, in the dashboard."""
    return quick.attach(session)


def replay(
    session: Session,
    speed: Annotated[float, typer.Option("--speed", metavar="X", help="Seconds of the log a second.")] = 1.0,
    start: Annotated[float, typer.Option("--from", metavar="T", min=0, help="Seconds into the log.")] = 0.0,
) -> int:
    """Play a session back in the dashboard: pause, speed, seek.

    SESSION may also be a bundled one (gemm-ladder-h200) or an exported file.
    """
    from .. import tui
    from ..sessions import examples

    if not 0 < speed <= 1000:
        raise UsageError(f"--speed {speed:g}: use more than 0, and at most 1000")
    folder = examples.resolve(session)
    quick.need_terminal(f"warpdeck sessions show {folder.name}")
    return tui.run_replay(folder, speed, start)


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (tune, attach, replay):
        app.command()(command)
