"""Every rung of every ladder as Markdown, from its source's head: `python docs/ladder_reference.py`."""

from __future__ import annotations

from collections.abc import Iterator

from warpdeck.agents.ladder import described
from warpdeck.core.workload import Variant, Workload
from warpdeck.kernels import list_workloads, load_workload

HEAD = """# Rungs

Every rung of the bundled [ladders](../ladder.md): what it changes over the one below and what limits it, as
its source's head comment says it, and its knobs. The first value of each knob is the rung's default.
"""


def render() -> str:
    """The whole page."""
    workloads = [load_workload(name) for name in list_workloads()]
    sections = [part for w in workloads if w.ladder() for part in _workload(w)]
    return "\n\n".join([HEAD, *sections]) + "\n"


def _workload(workload: Workload) -> Iterator[str]:
    yield f"## {workload.name}\n\n{workload.description}."
    for rung in workload.ladder():
        title, text = described(rung)
        knobs = workload.space_of(rung.name).knobs
        yield f"### {rung.ladder} `{rung.name}`"
        yield f"**{_plain(title[:1].upper() + title[1:])}.** {_plain(text)}"
        yield "\n".join(f"- `{name}`: {', '.join(map(str, values))}" for name, values in knobs.items())
        yield _about(workload, rung)


def _about(workload: Workload, rung: Variant) -> str:
    path = f"kernels/{workload.name}/{_file(workload, rung)}"
    said = f"`warpdeck check {workload.name} --variant {rung.name}`, `{path}`"
    return said + (f"; **{rung.precision}**: labelled, never the best" if rung.precision else "")


def _file(workload: Workload, rung: Variant) -> str:
    return rung.file.relative_to(workload.folder).as_posix()


def _plain(text: str) -> str:
    """A comment's words, none of which is markup."""
    for character in "\\*_<|[":
        text = text.replace(character, f"\\{character}")
    return text


if __name__ == "__main__":
    print(render())
