"""From what someone asks for to the run that is meant: what is left out, the agent or the recording says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..agents import registry
from ..core.errors import UsageError
from ..core.model import CacheMode
from ..kernels.imported import open_workload
from ..kernels.recordings import subject_of
from .budgets import DEFAULT_AGENT, steps_of
from .spec import RunSpec

CACHES = (CacheMode.COLD, CacheMode.HOT)


def plan(
    workload: str | None,
    agent: str = DEFAULT_AGENT,
    *,
    device: str = "auto",
    space: str | None = None,
    sizes: Sequence[int] = (),
    steps: int | None = None,
    cache: str | None = None,
    options: Mapping[str, Any] | None = None,
    **more: Any,
) -> RunSpec:
    """The run that is asked for.

    Args:
        workload: a name or a folder; None: the recorded device's; "": it is still to be made.
        agent: an agent's name.
        device: as `--device`.
        space: None: the agent's, else the recording's, else `full`.
        sizes: none: the workload's own.
        steps: None: the agent's usual budget.
        cache: None: cold, or as recorded.
        options: the agent's settings.
        more: further fields of `RunSpec`.

    Raises:
        UsageError: an unknown name, or a value that can't be; a workload that no name is given for.
    """
    if cache is not None and cache not in CACHES:
        raise UsageError(f"--cache '{cache}': use cold or hot")
    chosen = space or registry.agent_spec(agent).space
    if chosen is not None and workload and chosen != space:
        spaces = open_workload(workload).spaces  # a workload without a ladder has one of another name
        chosen = next((name for name in (chosen, "full", *spaces) if name in spaces), chosen)
    subject = subject_of(device, workload, chosen, cache)
    return RunSpec(
        workload=subject.workload,
        agent=agent,
        device=device,
        space=subject.space,
        sizes=tuple(sizes),
        steps=steps_of(agent, steps),
        cache=subject.cache,
        options=dict(options or {}),
        **more,
    )
