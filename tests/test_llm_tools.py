"""What the LLM agent's model can look into: tools, counters, research."""

from __future__ import annotations

from typing import Any

import pytest
from llm_runs import SIGNATURE, Run, propose
from llm_server import LlmServer
from llm_steps import answer, call


@pytest.fixture
def server():
    with LlmServer() as found:
        yield found


def compiled(source: str) -> dict[str, Any]:
    """What the tool `compile` is called with."""
    return {"source": source, "entries": ["tile"]}


def test_tools_look_without_costing_a_step(tmp_path, server):
    draft = f"{SIGNATURE} {{ c[0] = a[threadIdx.x]; }}\n"
    clock = f"{SIGNATURE} {{ c[0] = float(clock64()); }}\n"
    server.say(
        answer(propose("takes 400 us")),
        call(
            "compile", {"source": draft, "entries": ["tile"]}, "compile", {"source": "x", "entries": ["tile"]}
        ),
        call("compile", compiled(clock), "resources", {"attempt": 2}),
        call(
            "show_attempt",
            {"attempt": 2, "what": "difference", "other": None},
            *("show_attempt", {"attempt": 77, "what": "source", "other": None}),
            *("timeline", {"attempt": 2, "case": "256"}),
            *("sanitize", {"attempt": 2}),
            *("search_docs", {"query": "coalesced global memory access"}),
        ),
        call(
            "machine_code",
            {"attempt": 2, "kind": "ptx", "kernel": "", "contains": "st.global", "first": 1, "count": 5},
        ),
        answer(propose("takes 300 us")),
    )
    run = Run(tmp_path, server)
    assert run.search(3).steps == 3
    said = [data["result"] for data in run.of("tool")]
    assert [data["name"] for data in run.of("tool")][:2] == ["compile", "compile"]
    wanted = [
        "registers",
        "doesn't compile",
        "would be refused: the kernel reads a clock",
        "tile: ",
        "+// takes 400 us",
        "no attempt 77",
        "no stage markers",
        "runs no sanitizer",
        "",
        "st.global",
    ]
    for text, words in zip(said, wanted, strict=True):
        assert words in text and text.startswith("<<<"), (words, text)
    assert not list((tmp_path / "artifacts").glob("draft*"))


def test_only_tools_that_the_device_can_give_are_offered(tmp_path):
    offered = {}
    for name, options in {"timed": {}, "counters": {"counters": True}, "emulated": {}}.items():
        folder = tmp_path / name
        folder.mkdir()
        with LlmServer(answer(propose("takes 100 us"))) as server:
            Run(folder, server, emulated=name == "emulated", **options).search(2)
            offered[name] = {tool["function"]["name"] for tool in server.asked[0].body["tools"]}
    assert offered["emulated"] == {"show_attempt", "search_docs", "evaluate"}
    assert offered["counters"] - offered["timed"] == {"counters"}
    assert offered["timed"] > {"compile", "machine_code", "timeline", "sanitize"}


def test_counters_are_read_of_each_valid_attempt_and_told(tmp_path, server):
    server.say(answer(propose("takes 400 us")), answer(propose("faults")), answer(propose("takes 300 us")))
    run = Run(tmp_path, server, counters=True)
    run.search(4)
    assert run.nodes.count("counters") == 3
    assert "reads no hardware counters" in run.attempts[1]["diagnosis"][0]
    assert "reads no hardware counters" in server.asked[1].messages[-1]["content"]


def test_research_comes_first_and_its_lack_is_told(tmp_path, server):
    server.say(answer(propose("takes 400 us")))
    run = Run(tmp_path, server, research=True)
    run.search(2)
    assert run.nodes[:3] == ["initialise", "research", "reference"]
    assert any("no web search" in text for text in run.messages)
