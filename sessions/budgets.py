"""Which agent and how many evaluations, where nobody says."""

from __future__ import annotations

DEFAULT_AGENT = "tpe"
DEFAULT_STEPS = 100
LLM_STEPS = 10  # evaluations, each of which may have been paid for
ALL_STEPS = 10**6  # a sweep, or a climb, ends with what there is to try
_USUAL = {"llm": LLM_STEPS, "sweep": ALL_STEPS, "ladder": ALL_STEPS}


def steps_of(agent: str, steps: int | None = None) -> int:
    """The budget of evaluations: what was asked for, else the agent's usual one."""
    return steps or _USUAL.get(agent, DEFAULT_STEPS)
