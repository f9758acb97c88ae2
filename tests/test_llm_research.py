"""`--research`: the real client asks a server's web search, limited to NVIDIA's pages.

Servers that haven't it, or don't keep to that, are said and passed over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from llm_bed import Bed, failure
from llm_runs import Run, propose
from llm_server import LlmServer
from llm_steps import Step, answer, cut, refusal, status, usage

from warpdeck.agents.llm.client import DOMAINS

PAGES = ("https://docs.nvidia.com/cuda/", "https://developer.nvidia.com/blog/b?utm_source=openai")


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    with Bed(tmp_path) as made:
        yield made


def found(text: str = "Use wide loads.", **more: Any) -> Step:
    return answer(text, **{"sources": PAGES, "searches": 2, "usage": usage(10, 5), **more})


def warning(bed: Bed) -> str:
    (last,) = [m["text"] for m in bed.log.of("message") if m["level"] == "warning"][-1:]
    return last


def test_it_is_limited_to_nvidia_names_its_sources_and_is_paid_for_once(bed: Bed) -> None:
    server = bed.server(responses=[found(reasoning="searched")])
    client = bed.client(server)
    reply = client.research("How?", attempt=1)
    assert reply is not None
    assert reply.text == "\n".join(["Use wide loads.", *(f"Source: {page}" for page in PAGES)])
    assert reply.usage.input == 10 and client.usage.input == 10 and reply.reasoning == "searched"
    (request,) = server.requests
    assert request.path.endswith("/responses") and request.body["input"] == "How?"
    assert request.body["tools"] == [
        {"type": "web_search", "filters": {"allowed_domains": ["docs.nvidia.com", "developer.nvidia.com"]}}
    ]
    assert request.body["reasoning"]["effort"] == "medium" and request.body["store"] is False
    resumed = bed.client(server, past=list(bed.log.events))
    again = resumed.research("How?", attempt=1)
    assert again is not None and again.text == reply.text and len(server.requests) == 1


@pytest.mark.parametrize("more", [{"sources": ()}, {"searches": 0}], ids=["searched", "cited"])
def test_a_search_shows_in_its_calls_or_its_sources(bed: Bed, more: dict[str, Any]) -> None:
    assert bed.client(bed.server(responses=[found(**more)])).research("How?") is not None


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (found(sources=(*PAGES, "https://evil.example/?docs.nvidia.com")), "NVIDIA's pages (evil.example)"),
        (found(sources=("https://docs.nvidia.com.evil.example/",)), "(docs.nvidia.com.evil.example)"),
        (found(sources=("https://notnvidia.com/docs.nvidia.com",)), "(notnvidia.com)"),
        (found(sources=("javascript:docs.nvidia.com",)), "keep to NVIDIA's pages"),
        (answer("From memory: use wide loads."), "answered without searching"),
        (found(" "), "answered without searching"),
        (status(400, "Unknown tool type: web_search", param="tools[0].type"), "no web search"),
        (status(400, "Hosted tool 'web_search' is not supported with this model."), "no web search"),
        (status(422, "extra fields not permitted: filters"), "no web search"),
        (status(404, "no route"), "no web search"),
        (status(501, "not implemented"), "no web search"),
    ],
)
def test_a_server_that_can_not_is_said_and_passed_over(bed: Bed, step: Step, words: str) -> None:
    server = bed.server(responses=[step, answer("never asked for")])
    assert bed.client(server).research("How?") is None
    assert words in warning(bed) and warning(bed).startswith("research: ")
    assert len(server.requests) == 1


def test_a_server_without_the_responses_api_is_passed_over(bed: Bed) -> None:
    server = bed.server()
    assert bed.client(server).research("How?") is None
    assert "no web search" in warning(bed) and len(server.requests) == 1


@pytest.mark.parametrize(
    "bad",
    [
        status(400, "Unsupported value", error_code="unsupported_value", param="reasoning.summary"),
        status(400, "web_search cannot be used with reasoning.effort 'minimal'.", param="tools"),
    ],
)
def test_reasoning_is_left_out_where_it_is_refused(bed: Bed, bad: Step) -> None:
    server = bed.server(responses=[bad, found()])
    reply = bed.client(server).research("How?")
    assert reply is not None and "reasoning" not in server.requests[1].body
    assert server.requests[1].body["tools"] == server.requests[0].body["tools"]


@pytest.mark.parametrize("bad", [status(429, retry_after=3), status(503), cut("half an answer", after=4)])
def test_what_passes_is_tried_again(bed: Bed, bad: Step) -> None:
    server = bed.server(responses=[bad, found()])
    assert bed.client(server).research("How?") is not None
    assert len(server.requests) == 2


def test_a_refusal_and_a_bad_key_are_told_apart(bed: Bed) -> None:
    server = bed.server(responses=[refusal("No."), status(401)])
    client = bed.client(server)
    assert failure(lambda: client.research("How?")).kind == "refused"
    assert failure(lambda: client.research("Why?")).kind == "key"


# -- in a run --------------------------------------------------------------------------------------------


def test_what_is_found_goes_into_the_proposals_of_a_run(tmp_path: Path) -> None:
    steps = [found("Use cp.async."), answer(propose("takes 400 us")), answer(propose("takes 300 us"))]
    with LlmServer(responses=steps) as server:
        run = Run(tmp_path, server, research=True, api="responses")
        run.search(3)
        bodies = [asked.body for asked in server.requests]
    assert run.nodes[:3] == ["initialise", "research", "reference"]
    assert [r["purpose"] for r in run.of("request")] == ["research", "propose", "propose"]
    assert "gemm" in bodies[0]["input"] and bodies[0]["tools"][0]["filters"] == {
        "allowed_domains": [*DOMAINS]
    }
    for body in bodies[1:]:
        asked = str(body["input"][1]["content"])
        assert "Notes from NVIDIA's documentation" in asked and "Use cp.async." in asked
        assert all(tool["type"] == "function" for tool in body["tools"])  # the web only before the first
    assert run.agent.history.best is not None and run.agent.history.best.number == 3


@pytest.mark.parametrize(
    "step", [status(400, "no such tool"), status(401), answer("by heart"), refusal("No.")]
)
def test_a_run_goes_on_without(tmp_path: Path, step: Step) -> None:
    with LlmServer(answer(propose("takes 400 us")), responses=[step]) as server:
        run = Run(tmp_path, server, research=True)
        assert run.search(2).steps == 2
        assert "Notes from" not in str(server.asked[0].messages[1]["content"])
    assert any("research" in text for text in run.messages)
