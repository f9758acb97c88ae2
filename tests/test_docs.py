"""What the documentation says of commands, graphs, ladders and figures is what the code has."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import typer.main
from cli_support import warpdeck

from warpdeck.agents.llm.graph import mermaid
from warpdeck.agents.llm.settings import LlmSettings
from warpdeck.cli.app import app
from warpdeck.core.errors import ExitCode
from warpdeck.kernels import list_workloads, load_workload

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NOTES = [ROOT / "CHANGELOG.md", *sorted((ROOT / "benchmarks").rglob("*.md"))]
SCRIPTS = (ROOT / "benchmarks", ROOT / "docs")
GENERATED = {ROOT / "docs/reference" / f"{name}.md" for name in ("cli", "counters", "keys", "ladders")}
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMANDS: Any = typer.main.get_command(app)
LADDERS = [w for w in map(load_workload, list_workloads()) if w.ladder()]


def commands(text: str) -> list[str]:
    """The `warpdeck …` lines of a page's console blocks, continued ones joined."""
    blocks = (body for kind, body in FENCE.findall(text) if kind in ("console", "sh", "bash"))
    lines = (line for body in blocks for line in body.replace("\\\n", " ").splitlines())
    return [line for line in lines if line.startswith("warpdeck ")]


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that the words name, and the rest."""
    node = COMMANDS
    while words and words[0] in getattr(node, "commands", {}):
        node, words = node.commands[words[0]], words[1:]
    return node, words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_and_option_exists(page: Path) -> None:
    for line in commands(page.read_text(encoding="utf-8")):
        words = shlex.split(line, comments=True)[1:]
        node, rest = command_of(words)
        known = {name for parameter in node.params for name in (*parameter.opts, *parameter.secondary_opts)}
        given = [word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)]
        unknown = [option for option in given if option not in known | {"--help", "--version"}]
        assert not unknown, f"{line}: {node.name} has no {', '.join(unknown)}"
        groups = hasattr(node, "commands") and any(not word.startswith("-") for word in rest)
        assert not groups, f"{line}: there is no such command"


@pytest.mark.parametrize("page", [*PAGES, *NOTES], ids=lambda page: page.stem)
def test_every_link_and_every_benchmark_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#\s]+)", text):
        made = page.parent / link in GENERATED
        assert made or "://" in link or (page.parent / link).exists(), f"nothing is at {link}"
    for name, given in re.findall(r"python (?:benchmarks/)?(\w+\.py)([^`\n]*)", text):
        scripts = [folder / name for folder in SCRIPTS if (folder / name).is_file()]
        assert scripts, f"there is no {name}"
        source = scripts[0].read_text(encoding="utf-8")
        unknown = [option for option in re.findall(r"--[a-z-]+", given) if f'"{option}"' not in source]
        assert not unknown, f"{name} has no {', '.join(unknown)}"


def test_every_exit_code_is_explained() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    table = text.partition("| exit code | means |")[2].partition("\n\n")[0]
    told = {
        int(code)
        for cells in re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE)
        for code in cells.split(",")
    }
    assert told == set(ExitCode)


def test_the_graph_is_what_show_graph_prints() -> None:
    text = (ROOT / "docs/llm.md").read_text(encoding="utf-8")
    shown = [body for kind, body in FENCE.findall(text) if kind == "mermaid"]
    assert shown == [mermaid(LlmSettings(counters=True, research=True))]


@pytest.mark.parametrize("workload", LADDERS, ids=lambda workload: workload.name)
def test_the_page_on_ladders_names_every_rung(workload: Any) -> None:
    text = (ROOT / "docs/ladder.md").read_text(encoding="utf-8")
    section = next(
        part for part in re.split(r"^### ", text, flags=re.MULTILINE) if workload.name in part[:30]
    )
    columns = [line.split("|")[1:-1] for line in section.splitlines() if line.startswith("| ")]
    heads = [cell.strip() for cell in columns[0]]
    at = heads.index(workload.name) if workload.name in heads else 0
    told = [row[at].strip(" `") for row in columns[1:] if row[at].strip()]
    assert told == [rung.name for rung in workload.ladder()]


def test_the_figures_are_those_of_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    import ladder_figures  # pyright: ignore[reportMissingImports]

    assert ladder_figures.PAGE.read_text(encoding="utf-8") == ladder_figures.render(), (
        "docs/ladder-figures.md is old: python docs/ladder_figures.py"
    )


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("profile", ("softmax", "--device", "recorded:h200")),
        ("trace", ("gemm", "--device", "recorded:h200")),
        ("check", ("softmax", "--device", "recorded:h200")),
        ("occupancy", ("--cc", "9.0", "--registers", "40")),
        (
            "sweep",
            ("softmax", "--device", "recorded:h200", "--size", "256", "--counters", "--csv", "table.csv"),
        ),
        ("tune", ("softmax", "--device", "recorded:h200", "--agent", "random", "--steps", "2", "--headless")),
        ("doctor", ()),
    ],
)
def test_documents_have_the_keys_that_the_page_names(
    command: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    page = (ROOT / "docs/reference/formats.md").read_text(encoding="utf-8").partition("## Documents of")[2]
    (row,) = re.findall(rf"^\| `{command}` \| (.*) \|$", page, re.MULTILINE)
    home = {**os.environ, "WARPDECK_HOME": str(tmp_path)}
    printed = warpdeck(command, *options, "--json", env=home, cwd=tmp_path).stdout
    _compare(row, json.loads(printed))


def _compare(row: str, document: Mapping[str, Any]) -> None:
    """Every key in backticks is one of the document's, and each name in [{…}] one of its first entry's."""
    keys = set(re.findall(r"`(\w+)`", re.sub(r"\(.*?\)|; of a report.*|\[[^]]*\]\([^)]*\)", "", row)))
    assert keys and keys <= document.keys(), keys - document.keys()
    for key, names in re.findall(r"`(\w+)` \[\{([^}]*)\}\]", row):
        entry = document[key][0] if document[key] else {}
        assert not document[key] or {n for n in names.split(", ") if " " not in n} <= entry.keys(), key
