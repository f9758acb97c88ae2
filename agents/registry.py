"""Agents by name. Each factory imports its libraries only when it is called."""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..core.errors import UsageError
from ..core.expr import near
from .base import Context, Strategy

if TYPE_CHECKING:
    from ..core.bench import Bench

RL_MODULES = ("torch", "gymnasium", "stable_baselines3", "tensorboard")


@dataclass(frozen=True)
class AgentSpec:
    """What an agent is called, does, and takes. `options` maps each option to its smallest value, whose type
    is the option's."""

    name: str
    summary: str
    build: Callable[..., Strategy]
    options: Mapping[str, int | float] = field(default_factory=dict)
    needs_context: bool = False  # `build` takes `context`, a `base.Context`
    writes_code: bool = False  # its candidates are code of others, from which the inputs' seed is kept
    space: str | None = None  # the space it works in, where it isn't a matter of choice
    prepare: Callable[[Bench, Context], None] | None = None  # gives a resumed run's bench its sources back
    # For options that aren't all numbers: as the agent takes them, or UsageError; in place of `options`.
    parse: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None
    imports: tuple[str, ...] = ()  # modules that it waits for before the first measurement


def _sweep(bench: Bench, *, seed: int) -> Strategy:
    from .sweep import Sweep

    return Sweep(bench)


def _random(bench: Bench, *, seed: int) -> Strategy:
    from .random_search import RandomSearch

    return RandomSearch(bench, seed=seed)


def _tpe(bench: Bench, *, seed: int, **options: Any) -> Strategy:
    from .tpe import TPE

    return TPE(bench, seed=seed, **options)


def _ladder(bench: Bench, *, seed: int, context: Context, **options: Any) -> Strategy:
    from .ladder import Ladder

    return Ladder(bench, context, seed=seed, **options)


def _llm(bench: Bench, *, seed: int, context: Context, **options: Any) -> Strategy:
    from .llm.loop import LlmAgent
    from .llm.settings import LlmSettings

    return LlmAgent(bench, context, LlmSettings.from_options(options))


def _llm_prepare(bench: Bench, context: Context) -> None:
    from .llm.loop import prepare

    prepare(bench, context)


def _llm_options(options: Mapping[str, Any]) -> dict[str, Any]:
    from .llm.settings import LlmSettings

    return LlmSettings.from_options(options).to_options()


def _ppo(bench: Bench, *, seed: int, **options: Any) -> Strategy:
    require_rl()
    from .ppo_search import PPOSearch

    return PPOSearch(bench, seed=seed, **options)


AGENTS: dict[str, AgentSpec] = {
    spec.name: spec
    for spec in (
        AgentSpec(
            "tpe",
            "tree-structured Parzen estimator (Optuna): learns which knob values go with good times",
            _tpe,
            {"startup": 1, "candidates": 1, "max_rejects": 0, "lookahead": 1},
            imports=("optuna",),
        ),
        AgentSpec("random", "uniform random search without replacement", _random),
        AgentSpec(
            "ladder",
            "climbs the workload's CUDA C++ variants from naive to excellent, and tries each one's knobs",
            _ladder,
            {"each": 1},
            needs_context=True,
            space="ladder",
        ),
        AgentSpec(
            "llm",
            "a language model rewrites CUDA C++ kernels, through any OpenAI-compatible server (extra: llm)",
            _llm,
            needs_context=True,
            writes_code=True,
            space="ladder",
            prepare=_llm_prepare,
            parse=_llm_options,
            imports=(f"{__package__}.llm.loop",),  # which imports openai when nothing waits for it
        ),
        AgentSpec("sweep", "every valid configuration once, in order", _sweep),
        AgentSpec(
            "ppo",
            "reinforcement learning: a PPO policy trained on the run's own evaluations (extra: rl)",
            _ppo,
            {"n_steps": 2, "n_epochs": 1, "learning_rate": 1e-6, "ent_coef": 0.0},
            imports=RL_MODULES,
        ),
    )
}


def agent_spec(name: str) -> AgentSpec:
    """The agent of this name. UsageError with near names if there is none."""
    if name not in AGENTS:
        raise UsageError(f"unknown agent '{name}'; {near(name, AGENTS)}")
    return AGENTS[name]


def preload(name: str) -> None:
    """Import what an agent needs, while something else is waited for. What is missing, `make` tells."""
    for module in agent_spec(name).imports:
        with suppress(Exception):
            importlib.import_module(module)


def make(
    name: str,
    bench: Bench,
    *,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    context: Context | None = None,
) -> Strategy:
    """Build an agent's strategy for a bench.

    Args:
        name: `sweep`, `random`, `tpe`, `ppo`, `ladder`, `llm`.
        bench: What it will be asked about.
        seed: Of everything the agent draws.
        options: The agent's own settings; texts are converted to the option's type.
        context: For agents with `needs_context`.

    Raises:
        UsageError: unknown agent or option, an impossible value, no valid configuration, or a missing extra.
    """
    values: dict[str, Any] = settings(name, options or {})
    spec = agent_spec(name)
    if spec.needs_context:
        if context is None:
            raise UsageError(f"agent '{name}' works only in a session")
        values["context"] = context
    return spec.build(bench, seed=seed, **values)


def prepare(name: str, bench: Bench, context: Context) -> None:
    """Give the bench of a resumed run the sources that the agent had made, before their results.

    Raises UsageError for one that is gone or was changed.
    """
    spec = agent_spec(name)
    if spec.prepare is not None:
        spec.prepare(bench, context)


def settings(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """An agent's options as it takes them. UsageError for an unknown agent or option, or a bad value."""
    spec = agent_spec(name)
    if spec.parse is not None:
        return spec.parse(options)
    values: dict[str, Any] = {}
    for key, value in options.items():
        if key not in spec.options:
            hint = near(key, spec.options) if spec.options else "it takes none"
            raise UsageError(f"agent '{name}' has no option '{key}'; {hint}")
        least = spec.options[key]
        try:
            values[key] = type(least)(value)
        except (TypeError, ValueError, OverflowError):
            kind = "a whole number" if isinstance(least, int) else "a number"
            raise UsageError(f"agent '{name}': {key} must be {kind}, not '{value}'") from None
        if not least <= values[key] < math.inf:
            raise UsageError(f"agent '{name}': {key} must be at least {least}, not {value}")
    return values


def require_rl() -> None:
    """UsageError unless the `rl` extra is installed. Looks, doesn't import."""
    for module in RL_MODULES:
        if importlib.util.find_spec(module) is None:
            raise UsageError(f'PPO needs the rl extra: pip install "warpdeck[rl]" (no module named {module})')
