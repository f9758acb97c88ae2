"""OpenAI's responses API: reasoning summaries, tools, forms, and the way back to chat completions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from llm_bed import ASK, GOOD, SCHEMA, Bed, echo_tool, failure
from llm_context import Hook
from llm_steps import Asked, Step, answer, call, cut, hold, overflow, raw, refusal, status, usage

from warpdeck.agents.llm.errors import ContextOverflow
from warpdeck.agents.llm.settings import LlmSettings


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    with Bed(tmp_path) as made:
        yield made


def test_it_is_the_first_choice_at_openai_only() -> None:
    openai, local = "https://api.openai.com/v1", "http://localhost:8080/v1"
    assert LlmSettings().uses_responses({})
    assert LlmSettings(base_url=openai).uses_responses({})
    assert not LlmSettings().uses_responses({"OPENAI_BASE_URL": local})
    assert not LlmSettings(base_url=local).uses_responses({})
    assert LlmSettings(base_url=local, api="responses").uses_responses({})
    assert not LlmSettings(api="chat").uses_responses({})


def test_an_answer_with_its_reasoning_summary(bed: Bed) -> None:
    counted = usage(1000, 200, cached=400, reasoning=150)
    server = bed.server(responses=[answer(GOOD, reasoning="I compared tiles.", usage=counted)])
    reply = bed.client(server, api="responses").ask(ASK, purpose="propose", schema=SCHEMA)
    assert reply.data == GOOD and reply.reasoning == "I compared tiles."
    assert (reply.usage.cached, reply.usage.reasoning) == (400, 150)
    body = server.requests[0].body
    assert body["reasoning"] == {"effort": "medium", "summary": "auto"} and body["store"] is False
    assert body["text"]["format"]["type"] == "json_schema" and body["text"]["format"]["strict"] is True
    assert body["input"] == ASK and bed.log.of("request")[0]["messages"] == ASK


def test_tools_go_there_and_back(bed: Bed) -> None:
    seen: list[Any] = []
    script = [call("measure", {"n": 4}), answer(GOOD)]
    server = bed.server(responses=script)
    client = bed.client(server, api="responses")
    reply = client.ask(ASK, purpose="propose", schema=SCHEMA, tools=[echo_tool(seen)])
    assert reply.data == GOOD and seen == [{"n": 4}]
    (tool,) = server.requests[0].body["tools"]
    assert tool["name"] == "measure" and tool["strict"] is False
    assert server.requests[1].body["input"][2:] == [
        {"type": "function_call", "call_id": "call_0", "name": "measure", "arguments": '{"n": 4}'},
        {"type": "function_call_output", "call_id": "call_0", "output": "result of 4"},
    ]
    resumed = bed.client(server, api="responses", past=list(bed.log.events))
    assert resumed.ask(ASK, purpose="propose", schema=SCHEMA, tools=[echo_tool(seen)]).data == GOOD
    assert len(server.requests) == 2


def _unless(refused: str, words: str) -> Any:
    def look(asked: Asked) -> Step:
        kind, _, key = refused.partition(".")
        there = key in asked.body.get(kind, {}) if key else kind in asked.body
        if there:
            return status(400, words, error_code="unsupported_value", param=refused)
        return answer(GOOD)

    return look


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        ("reasoning.summary", "Your organization must be verified to generate reasoning summaries."),
        ("reasoning", "Unsupported parameter: 'reasoning.effort' is not supported with this model."),
        ("text.format", "Unsupported parameter: 'text.format'."),
    ],
)
def test_what_is_refused_is_left_out_and_remembered(bed: Bed, refused: str, words: str) -> None:
    if refused == "text.format":

        def picky(asked: Asked) -> Step:
            strict = asked.body["text"]["format"]["type"] == "json_schema"
            return status(400, words, param=refused) if strict else answer(GOOD)

    else:
        picky = _unless(refused, words)
    server = bed.server(responses=[picky] * 9)
    client = bed.client(server, api="responses")
    for purpose in ("one", "two"):
        assert client.ask(ASK, purpose=purpose, schema=SCHEMA).data == GOOD
    assert len(server.requests) == 3 and not server.asked


@pytest.mark.parametrize("absent", [True, False])
def test_a_server_without_it_is_asked_by_chat_from_then_on(bed: Bed, absent: bool) -> None:
    steps = None if absent else [status(400, "Unknown parameter: 'store'", param="store")]
    server = bed.server(answer(GOOD), answer(GOOD), responses=steps)
    client = bed.client(server, api="responses")
    for purpose in ("one", "two"):
        assert client.ask(ASK, purpose=purpose, schema=SCHEMA).data == GOOD
    assert len(server.asked) == 2 and len(server.requests) == 3
    assert "going on without the responses API" in bed.log.of("message")[0]["text"]
    resumed = bed.client(server, api="responses", past=list(bed.log.events))
    server.say(answer(GOOD))
    resumed.ask(ASK, purpose="three", schema=SCHEMA)
    assert len(server.requests) == 4


def test_failures_are_told_apart_as_in_chat(bed: Bed) -> None:
    server = bed.server(
        responses=[
            status(503),
            cut("half an answer", after=4),
            answer("Whole."),
            refusal("No."),
            overflow(4096),
        ]
    )
    client = bed.client(server, api="responses")
    assert client.ask(ASK, purpose="a").text == "Whole."
    assert failure(lambda: client.ask(ASK, purpose="b")).kind == "refused"
    with pytest.raises(ContextOverflow):
        client.ask(ASK, purpose="c")
    assert not server.asked


def test_a_short_answer_is_told_apart_from_a_filtered_one(bed: Bed) -> None:
    server = bed.server(
        responses=[answer('{"idea"', finish="length"), answer(GOOD), answer("x", finish="content_filter")]
    )
    client = bed.client(server, api="responses")
    assert client.ask(ASK, purpose="a", schema=SCHEMA).data == GOOD
    assert failure(lambda: client.ask(ASK, purpose="b", schema=SCHEMA)).kind == "refused"


def test_a_failed_response_is_tried_again(bed: Bed) -> None:
    error = {"code": "server_error", "message": "x"}
    failed = json.dumps({"type": "response.failed", "response": {"status": "failed", "error": error}})
    server = bed.server(responses=[raw(f"data: {failed}\n\n"), answer("Fine.")])
    assert bed.client(server, api="responses").ask(ASK, purpose="a").text == "Fine."


def test_texts_stream(bed: Bed) -> None:
    server = bed.server(responses=[hold("word " * 100, after=240)])

    def look(checks: int) -> None:
        bed.time.sleep(1.0)
        if checks > 2:
            server.release()

    bed.client(server, api="responses", control=Hook(look)).ask(ASK, purpose="a")
    assert ("word " * 100).startswith(bed.log.of("partial")[0]["text"])
