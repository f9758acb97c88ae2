"""The loop's graph: its nodes and transitions as data, which the loop executes and `--show-graph` prints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from .settings import LlmSettings


class Node(StrEnum):
    """Where the loop is."""

    INITIALISE = "initialise"
    RESEARCH = "research"
    REFERENCE = "reference"
    INITIAL = "initial"
    IDEAS = "ideas"
    PROPOSE = "propose"
    EVALUATE = "evaluate"
    COUNTERS = "counters"
    REFINE = "refine"
    REPAIR = "repair"
    FINALISE = "finalise"


TITLES = {
    Node.INITIALISE: "initialise",
    Node.RESEARCH: "research NVIDIA's documentation",
    Node.REFERENCE: "evaluate the reference",
    Node.INITIAL: "evaluate the initial kernel",
    Node.IDEAS: "ideas in words, for each parent",
    Node.PROPOSE: "propose source and launches",
    Node.EVALUATE: "compile, check, time",
    Node.COUNTERS: "read hardware counters",
    Node.REFINE: "refine: keep what won, learn from the rest",
    Node.REPAIR: "repair",
    Node.FINALISE: "finalise",
}


NEEDS = {
    Node.RESEARCH: "research",
    Node.COUNTERS: "counters",
    Node.IDEAS: "beam",
    Node.REPAIR: "linear",  # a beam repairs what failed among the next round's proposals
}
"""Nodes that exist only with a feature (a setting that is on, or the strategy)."""


@dataclass(frozen=True)
class Edge:
    """A transition. `label`: its condition, in words ("" for the only way on). `needs`: the feature without
    which it doesn't exist; `unless`: the one with which it doesn't."""

    source: Node
    target: Node
    label: str = ""
    needs: str | None = None
    unless: str | None = None


EDGES = (
    Edge(Node.INITIALISE, Node.RESEARCH),
    Edge(Node.INITIALISE, Node.REFERENCE, unless="research"),
    Edge(Node.RESEARCH, Node.REFERENCE),
    Edge(Node.REFERENCE, Node.INITIAL),
    Edge(Node.REFERENCE, Node.REFINE, "resumed, or no initial kernel"),
    Edge(Node.INITIAL, Node.COUNTERS, "valid"),
    Edge(Node.INITIAL, Node.REFINE, "invalid", needs="counters"),
    Edge(Node.INITIAL, Node.REFINE, unless="counters"),
    Edge(Node.REFINE, Node.PROPOSE, "next attempt, or a draft was evaluated", needs="linear"),
    Edge(Node.REFINE, Node.IDEAS, "next round"),
    Edge(Node.REFINE, Node.PROPOSE, "a draft was evaluated", needs="beam"),
    Edge(Node.REFINE, Node.EVALUATE, "next of the round", needs="beam"),
    Edge(Node.REFINE, Node.EVALUATE, "resumed before its evaluation", needs="linear"),
    Edge(Node.REFINE, Node.REPAIR, "invalid candidate", needs="linear"),
    Edge(Node.REFINE, Node.FINALISE, "a budget is spent, the target reached, or the model of no use"),
    Edge(Node.IDEAS, Node.PROPOSE, "ideas, and invalid candidates to repair"),
    Edge(Node.IDEAS, Node.REFINE, "no usable ideas"),
    Edge(Node.PROPOSE, Node.EVALUATE, "proposal, or a draft within the model's turn"),
    Edge(Node.PROPOSE, Node.REFINE, "no usable proposal"),
    Edge(Node.REPAIR, Node.EVALUATE, "proposal, or a draft", needs="linear"),
    Edge(Node.REPAIR, Node.REFINE, "no usable proposal", needs="linear"),
    Edge(Node.EVALUATE, Node.COUNTERS, "valid"),
    Edge(Node.EVALUATE, Node.REFINE, "invalid", needs="counters"),
    Edge(Node.EVALUATE, Node.REFINE, unless="counters"),
    Edge(Node.COUNTERS, Node.REFINE),
)


class IllegalTransition(RuntimeError):
    """The loop went where no edge leads: a bug."""


def features(settings: LlmSettings) -> frozenset[str]:
    """What of the graph these settings switch on."""
    on = {settings.strategy}
    on |= {name for name in ("counters", "research") if getattr(settings, name)}
    return frozenset(on)


def edges(settings: LlmSettings) -> tuple[Edge, ...]:
    """The transitions that exist with these settings."""
    on = features(settings)
    absent = {node for node, feature in NEEDS.items() if feature not in on}
    return tuple(
        e
        for e in EDGES
        if not absent & {e.source, e.target} and (e.needs is None or e.needs in on) and e.unless not in on
    )


class Machine:
    """Where the loop is; every move is checked against the graph and told to `emit(node, detail)`."""

    def __init__(self, settings: LlmSettings, emit: Callable[[Node, str], None]) -> None:
        self.node = Node.INITIALISE
        self._allowed = {(e.source, e.target) for e in edges(settings)}
        self._emit = emit

    def start(self, detail: str = "") -> None:
        """Tell of the first node."""
        self._emit(self.node, detail)

    def go(self, node: Node, detail: str = "") -> None:
        """Move. Raises IllegalTransition where no edge leads."""
        if (self.node, node) not in self._allowed:
            raise IllegalTransition(f"the loop can't go from {self.node} to {node}")
        self.node = node
        self._emit(node, detail)


def mermaid(settings: LlmSettings) -> str:
    """The graph as a Mermaid flowchart; conditional routes are dotted."""
    chosen = edges(settings)
    used = [node for node in Node if any(node in (e.source, e.target) for e in chosen)]
    lines = ["flowchart TD", "    start([start]) --> initialise"]
    for node in used:
        lines.append(f'    {node}["{TITLES[node]}"]')
    for edge in chosen:
        arrow = f"-. {edge.label} .->" if edge.label else "-->"
        lines.append(f"    {edge.source} {arrow} {edge.target}")
    lines.append("    finalise --> stop([end])")
    return "\n".join(lines) + "\n"
