"""Requests hold what OpenAI's API documents, and nothing else; the tests' server answers as it documents.

The documentation is what the SDK's types say, which are generated from the API's description.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import openai
import pytest
from llm_bed import ASK, GOOD, SCHEMA, Bed, echo_tool, failure
from llm_steps import Step, answer, call, refusal, usage
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from openai.types.shared_params.reasoning_effort import ReasoningEffort
from pydantic import TypeAdapter, ValidationError

from warpdeck.agents.llm.negotiate import FORMS
from warpdeck.agents.llm.proposal import IDEAS
from warpdeck.agents.llm.proposal import SCHEMA as PROPOSAL
from warpdeck.agents.llm.settings import EFFORTS

CHAT = TypeAdapter[Any](CompletionCreateParamsStreaming)
WHOLE = TypeAdapter[Any](CompletionCreateParamsNonStreaming)
RESPONSES = TypeAdapter[Any](ResponseCreateParamsStreaming)
(DOCUMENTED_EFFORTS,) = filter(None, map(get_args, get_args(ReasoningEffort)))
SEARCH = {"type": "web_search", "filters": {"allowed_domains": ["docs.nvidia.com", "developer.nvidia.com"]}}
PAGE = "https://docs.nvidia.com/cuda/"
LOUD = {"effort": "medium", "answer_tokens": 4000}


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    with Bed(tmp_path) as made:
        yield made


def documented(adapter: TypeAdapter[Any], body: Mapping[str, Any]) -> None:
    """Validate a request; what its type doesn't know is lost on the way, so that nothing may be lost."""
    assert _plain(adapter.validate_python(body)) == body


def _plain(value: Any) -> Any:
    """Also validates: pydantic leaves an `Iterable`'s entries until they are asked for."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return value


def talk(bed: Bed, *steps: Step, form: str = FORMS[0], **settings: Any) -> list[Mapping[str, Any]]:
    """The bodies of a conversation with a tool call and a structured answer, on a server without the forms
    above this one."""
    refused = FORMS[: FORMS.index(form)]
    responses = settings.get("api") == "responses"
    turns = [call("measure", {"n": 1}, reasoning="let me see"), *steps]
    server = bed.server(*turns, responses=turns) if responses else bed.server(*turns, refuse=refused)
    settings = {**LOUD, **settings}
    reply = bed.client(server, **settings).ask(
        ASK, purpose="propose", attempt=1, schema=SCHEMA, tools=[echo_tool([])]
    )
    assert reply.data == GOOD
    return [asked.body for asked in server.requests]


@pytest.mark.parametrize("form", FORMS)
def test_chat_requests(bed: Bed, form: str) -> None:
    bodies = talk(bed, answer(GOOD), form=form)
    for body in bodies:
        documented(CHAT, body)
    last = bodies[-1]
    assert [m["role"] for m in last["messages"]] == ["system", "user", "assistant", "tool"]
    assert {"reasoning_effort", "max_completion_tokens", "tools", "stream_options"} < set(last)
    assert (last.get("response_format") or {"type": "text"})["type"] == form


def test_chat_requests_without_a_stream(bed: Bed) -> None:
    server = bed.server(answer(GOOD), refuse=["stream"])
    bed.client(server, **LOUD).ask(ASK, purpose="propose", schema=SCHEMA, tools=[echo_tool([])])
    documented(WHOLE, server.asked[-1].body)
    assert "stream" not in server.asked[-1].body and "stream_options" not in server.asked[-1].body


def test_responses_requests(bed: Bed) -> None:
    bodies = talk(bed, answer(GOOD), api="responses")
    for body in bodies:
        documented(RESPONSES, body)
    last = bodies[-1]
    kinds = [item.get("type", item.get("role")) for item in last["input"]]
    assert kinds == ["system", "user", "function_call", "function_call_output"]
    assert {"reasoning", "max_output_tokens", "tools", "text", "store"} < set(last)


@pytest.mark.parametrize("effort", [*DOCUMENTED_EFFORTS, ""])
def test_research_requests(bed: Bed, effort: str) -> None:
    server = bed.server(responses=[answer("Use wide loads.", sources=[PAGE], searches=1)])
    assert bed.client(server, effort=effort).research("How?") is not None
    (asked,) = server.requests
    documented(RESPONSES, asked.body)
    assert asked.path == "/v1/responses" and asked.body["tools"] == [SEARCH]


def test_every_effort_can_be_asked_for() -> None:
    assert set(DOCUMENTED_EFFORTS) <= set(EFFORTS)


@pytest.mark.parametrize(
    ("adapter", "more"),
    [
        (CHAT, {"max_output_tokens": 5}),
        (CHAT, {"messages": [{"role": "user", "content": "x", "thoughts": "y"}]}),
        (CHAT, {"stream_options": {"include_use": True}}),
        (RESPONSES, {"tools": [{**SEARCH, "domains": ["a"]}]}),
        (RESPONSES, {"tools": [{**SEARCH, "filters": {"allowed": ["a"]}}]}),
        (RESPONSES, {"reasoning": {"effort": "medium", "summary": "long"}}),
    ],
)
def test_what_is_not_documented_is_noticed(adapter: TypeAdapter[Any], more: Mapping[str, Any]) -> None:
    plain = {"model": "m", "stream": True, **({"messages": ASK} if adapter is CHAT else {"input": "x"})}
    documented(adapter, plain)
    with pytest.raises((AssertionError, ValidationError)):
        documented(adapter, {**plain, **more})


# -- schemas -----------------------------------------------------------------------------------------------

STRICT = {  # of OpenAI's structured outputs
    *("type", "enum", "const", "properties", "required", "additionalProperties", "items", "anyOf"),
    *("minItems", "maxItems", "pattern", "minimum", "maximum", "description"),
}


@pytest.mark.parametrize("given", [PROPOSAL, IDEAS, SCHEMA], ids=["proposal", "ideas", "optional"])
def test_schemas_are_within_the_strict_form(bed: Bed, given: Mapping[str, Any]) -> None:
    server = bed.server(default=answer("{}"))
    failure(lambda: bed.client(server).ask(ASK, purpose="propose", schema=given))
    form = server.asked[0].body["response_format"]["json_schema"]
    assert form["strict"] is True and form["name"] == "answer"
    todo = [form["schema"]]
    while todo:
        part = todo.pop()
        assert set(part) <= STRICT
        if part.get("type") == "object":
            assert part["additionalProperties"] is False and set(part["required"]) == set(part["properties"])
        todo += [*part.get("properties", {}).values(), *part.get("anyOf", ())]
        todo += [part["items"]] if "items" in part else []


# -- the tests' server ---------------------------------------------------------------------------------------

ANSWERS = [
    answer("text", reasoning="thought", usage=usage(7, 3, cached=2, reasoning=1)),
    call("measure", {"n": 1}, "measure", {"n": 2}),
    refusal(),
    answer("cut", finish="length"),
    answer("found", sources=[PAGE], searches=2),
]


@pytest.mark.parametrize("step", ANSWERS, ids=["text", "calls", "refusal", "short", "searched"])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_the_sdk_takes_what_the_server_answers(bed: Bed, step: Step, stream: bool) -> None:
    server = bed.server(step, responses=[step])
    client = openai.OpenAI(
        base_url=server.url, api_key="none", max_retries=0, _strict_response_validation=True
    )
    told: Any = {"model": "gpt-5-mini", "stream": stream}
    more: Any = {"messages": ASK, **({"stream_options": {"include_usage": True}} if stream else {})}
    with client:
        chat = client.chat.completions.create(**told, **more)
        response = client.responses.create(input="x", **told)
        if stream:
            *_, chat = list(chat)
            *_, response = (event.response for event in response if hasattr(event, "response"))
        else:
            assert chat.choices[0].finish_reason == step.finish
    assert chat.usage is not None
    assert response.status == ("incomplete" if step.finish == "length" else "completed")
