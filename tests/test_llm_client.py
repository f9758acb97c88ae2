"""The real openai client against a real local server: answers, forms, refused parameters, tools, keys."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from llm_bed import ASK, GOOD, KEY, SCHEMA, Bed, echo_tool, failure
from llm_context import Hook, Recorder
from llm_steps import Step, answer, call, hold, status, usage

from warpdeck.agents.llm.client import MAX_FRUITLESS, MAX_ROUNDS, REPAIRS, Client, Tool
from warpdeck.agents.llm.settings import LlmSettings
from warpdeck.core.errors import BudgetError, UsageError


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    with Bed(tmp_path) as made:
        yield made


# -- answers ---------------------------------------------------------------------------------------------


def test_an_answer_is_streamed_counted_priced_and_logged(bed: Bed) -> None:
    counted = usage(1000, 200, cached=400, reasoning=150)
    server = bed.server(answer("It is done.", reasoning="first think", usage=counted))
    prices = {"gpt-5-mini": {"input": 1.0, "cached": 0.1, "output": 10.0}}
    client = bed.client(server, prices=prices)
    reply = client.ask(ASK, purpose="propose", attempt=3)
    assert (reply.text, reply.data, reply.reasoning) == ("It is done.", None, "first think")
    assert (reply.usage.input, reply.usage.cached, reply.usage.output, reply.usage.reasoning) == (
        1000,
        400,
        200,
        150,
    )
    assert reply.cost == pytest.approx((600 * 1.0 + 400 * 0.1 + 200 * 10.0) / 1e6)
    assert client.usage == reply.usage and client.cost == reply.cost
    body = server.asked[0].body
    assert body["stream"] is True and body["reasoning_effort"] == "medium" and body["model"] == "gpt-5-mini"
    assert [kind for kind, _ in bed.log.events if kind != "partial"] == ["request", "response"]
    (request,), (response,) = bed.log.of("request"), bed.log.of("response")
    assert request["messages"] == ASK and request["attempt"] == 3 and request["purpose"] == "propose"
    assert response["id"] == request["id"] and response["text"] == "It is done." and not response["from_log"]
    assert response["cost"] == reply.cost and response["usage"]["reasoning"] == 150
    assert bed.log.flushed == len(bed.log.events)


def test_without_prices_the_cost_is_unknown_and_without_counts_the_tokens_are_estimated(bed: Bed) -> None:
    client = bed.client(bed.server(answer("four" * 10, usage=None)))
    reply = client.ask(ASK, purpose="propose")
    assert reply.cost is None and client.cost is None
    assert reply.usage.estimated and reply.usage.output == 10


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_of_either_field_or_in_the_text_is_kept_apart(bed: Bed, field: str) -> None:
    server = bed.server(
        answer("Yes.", reasoning="hm", reasoning_field=field), answer("<think>so so</think>\n\nNo.")
    )
    client = bed.client(server)
    assert (first := client.ask(ASK, purpose="a")).reasoning == "hm" and first.text == "Yes."
    assert (second := client.ask(ASK, purpose="b")).reasoning == "so so" and second.text == "No."


def test_partial_texts_come_at_most_twice_a_second(bed: Bed) -> None:
    text = "word " * 400
    # Every piece takes 0.1 s on the injected clock: it passes at each look at the control.
    clock = bed.time
    seen: list[float] = []
    client = bed.client(bed.server(hold(text, after=1000)), control=Hook(lambda n: release(n)))

    def release(checks: int) -> None:
        clock.sleep(0.3)
        seen.append(clock())
        if checks > 4:
            bed.servers[0].release()

    assert client.ask(ASK, purpose="propose").text == text
    parts = bed.log.of("partial")
    assert parts and text.startswith("".join(part["text"] for part in parts))
    assert len(parts) <= 1 + (seen[-1] - seen[0]) / 0.5 + 1


# -- structured answers ----------------------------------------------------------------------------------


def test_json_is_asked_for_with_a_strict_schema(bed: Bed) -> None:
    server = bed.server(answer({"idea": "tile it", "grid": None}))
    assert bed.client(server).ask(ASK, purpose="propose", schema=SCHEMA).data == {"idea": "tile it"}
    form = server.asked[0].body["response_format"]
    assert form["type"] == "json_schema" and form["json_schema"]["strict"] is True
    assert form["json_schema"]["schema"]["required"] == ["idea", "grid"]


def test_a_wrong_answer_is_repaired_with_what_was_wrong(bed: Bed) -> None:
    server = bed.server(answer({"idea": 3}), answer('{"idea": "x", '), answer(GOOD))
    reply = bed.client(server).ask(ASK, purpose="propose", schema=SCHEMA)
    assert reply.data == GOOD and reply.usage.input == 300
    assert '{"idea": 3}' in server.asked[1].prompt and "idea must be a text, not 3" in server.asked[1].prompt
    assert "not valid JSON" in server.asked[2].prompt


def test_a_form_that_brings_nothing_gives_way_to_the_next_and_stays_away(bed: Bed) -> None:
    prose = answer("I would tile it.")
    server = bed.server(prose, prose, prose, answer(GOOD), answer(GOOD))
    client = bed.client(server)
    assert client.ask(ASK, purpose="propose", schema=SCHEMA).data == GOOD
    assert client.ask(ASK, purpose="more", schema=SCHEMA).data == GOOD
    forms = [asked.body["response_format"]["type"] for asked in server.asked]
    assert forms == ["json_schema"] * 3 + ["json_object"] * 2
    assert "JSON schema" in server.asked[3].prompt


def test_no_usable_answer_at_all_is_one_plain_line(bed: Bed) -> None:
    server = bed.server(default=answer("Sorry, only prose."))
    error = failure(lambda: bed.client(server).ask(ASK, purpose="propose", schema=SCHEMA))
    assert error.kind == "invalid" and "no JSON object" in str(error)
    assert len(server.asked) == 7  # 3 + 2 + 2


def test_fenced_text_with_code_of_its_own(bed: Bed) -> None:
    text = 'Here:\n```json\n{"idea": "@code1"}\n```\n```cuda\n__global__ void f() { int x[] = {1}; }\n```\n'
    server = bed.server(answer(text), refuse=["json_schema", "json_object"])
    reply = bed.client(server).ask(ASK, purpose="propose", schema=SCHEMA)
    assert reply.data == {"idea": "__global__ void f() { int x[] = {1}; }\n"}
    assert "```json block" in server.asked[-1].prompt and "response_format" not in server.asked[-1].body


# -- refusals of parameters ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["reasoning_effort", "stream_options", "stream", "json_schema", "max_completion_tokens"]
)
def test_a_refused_parameter_is_dropped_once_and_remembered(bed: Bed, name: str) -> None:
    server = bed.server(answer(GOOD), answer(GOOD), refuse=[name])
    client = bed.client(server, answer_tokens=5000)
    for purpose in ("one", "two"):
        assert client.ask(ASK, purpose=purpose, schema=SCHEMA).data == GOOD
    assert len(server.asked) == 3
    last = server.asked[-1].body
    if name == "json_schema":
        assert last["response_format"] == {"type": "json_object"}
    else:
        assert name not in last
    if name == "max_completion_tokens":
        assert last["max_tokens"] == 5000
    assert any("going on without" in message["text"] for message in bed.log.of("message"))


def test_a_vague_rejection_sheds_the_optional_parts_one_by_one(bed: Bed) -> None:
    def picky(asked: Any) -> Step:
        plain = not {"response_format", "reasoning_effort"} & set(asked.body)
        return answer(GOOD) if plain else status(400, "Bad request")

    server = bed.server(default=picky)
    client = bed.client(server)
    assert client.ask(ASK, purpose="one", schema=SCHEMA).data == GOOD
    before = len(server.asked)
    assert client.ask(ASK, purpose="two", schema=SCHEMA).data == GOOD
    assert len(server.asked) == before + 1


def test_a_rejection_of_everything_ends_with_the_servers_words(bed: Bed) -> None:
    server = bed.server(default=status(400, "No <b>cats</b>\nallowed"))
    error = failure(lambda: bed.client(server).ask(ASK, purpose="one", schema=SCHEMA))
    assert error.kind == "request" and "No cats allowed" in str(error)
    assert len(server.asked) <= 8


# -- tools -----------------------------------------------------------------------------------------------


def test_tools_are_run_after_their_request_is_on_disk(bed: Bed) -> None:
    seen: list[Any] = []
    on_disk: list[int] = []
    server = bed.server(call("measure", {"n": 1}, "measure", {"n": 2}), answer(GOOD))
    tool = echo_tool(seen)

    def run(arguments: Mapping[str, Any]) -> str:
        on_disk.append(bed.log.flushed)
        return tool.run(arguments)

    client = bed.client(server)
    tools = [Tool(tool.name, tool.description, tool.parameters, run)]
    assert client.ask(ASK, purpose="propose", schema=SCHEMA, tools=tools).data == GOOD
    assert seen == [{"n": 1}, {"n": 2}]
    answered = next(i for i, (kind, _) in enumerate(bed.log.events) if kind == "response")
    assert on_disk[0] > answered
    wire = server.asked[1].messages
    assert [message["role"] for message in wire[-3:]] == ["assistant", "tool", "tool"]
    assert wire[-1] == {"role": "tool", "tool_call_id": "call_1", "content": "result of 2"}
    logged = bed.log.of("tool")
    assert [(t["name"], t["arguments"], t["result"]) for t in logged] == [
        ("measure", {"n": 1}, "result of 1"),
        ("measure", {"n": 2}, "result of 2"),
    ]


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (call("guess", {"n": 1}), "there is no tool 'guess'; known: measure"),
        (call("measure", '{"n": '), "not valid JSON"),
        (call("measure", {"n": "one"}), "n must be a whole number"),
        (call("measure", {}), "the arguments lacks n"),
    ],
)
def test_bad_calls_are_told_to_the_model(bed: Bed, step: Step, words: str) -> None:
    seen: list[Any] = []
    server = bed.server(step, answer("Fine."))
    assert bed.client(server).ask(ASK, purpose="propose", tools=[echo_tool(seen)]).text == "Fine."
    assert not seen and words in server.asked[1].prompt


def test_a_repeated_call_isnt_run_again(bed: Bed) -> None:
    seen: list[Any] = []
    server = bed.server(call("measure", {"n": 1}), call("measure", '{ "n":1 }'), answer("Fine."))
    assert bed.client(server).ask(ASK, purpose="propose", tools=[echo_tool(seen)]).text == "Fine."
    assert seen == [{"n": 1}] and "before" in server.asked[2].prompt


def test_a_loop_of_calls_ends(bed: Bed) -> None:
    seen: list[Any] = []
    server = bed.server(default=lambda asked: call("measure", {"n": asked.number}))
    error = failure(lambda: bed.client(server).ask(ASK, purpose="propose", tools=[echo_tool(seen)]))
    assert error.kind == "tool_loop" and len(seen) == MAX_ROUNDS
    assert "tools" not in server.asked[-1].body and "No more tool calls" in server.asked[-1].prompt


@pytest.mark.parametrize("name", ["measure", "no_such_tool"])
def test_a_loop_of_refused_calls_ends_sooner(bed: Bed, name: str) -> None:
    seen: list[Any] = []
    server = bed.server(default=lambda asked: call(name, {"n": 1}))
    error = failure(lambda: bed.client(server).ask(ASK, purpose="propose", tools=[echo_tool(seen)]))
    refused = MAX_FRUITLESS + len(seen)  # and then no tool is offered, for two repairs
    assert error.kind == "tool_loop" and len(seen) <= 1
    assert len(server.asked) == refused + 1 + REPAIRS
    assert "tools" not in server.asked[refused].body and "tools" in server.asked[refused - 1].body


def test_duplicated_and_missing_ids_are_made_unique(bed: Bed) -> None:
    seen: list[Any] = []
    server = bed.server(call("measure", {"n": 1}, "measure", {"n": 2}, ids=["a", "a"]), answer("Fine."))
    bed.client(server).ask(ASK, purpose="propose", tools=[echo_tool(seen)])
    sent = server.asked[1].messages
    names = [c["id"] for c in sent[-3]["tool_calls"]]
    assert len(set(names)) == 2 and names == [m["tool_call_id"] for m in sent[-2:]]
    assert seen == [{"n": 1}, {"n": 2}]


def test_without_tools_on_the_server_calls_are_written_as_text(bed: Bed) -> None:
    seen: list[Any] = []
    written = answer('I measure.\n{"tool": "measure", "arguments": {"n": 5}}')
    server = bed.server(written, answer(GOOD), refuse=["tools"])
    reply = bed.client(server).ask(ASK, purpose="propose", schema=SCHEMA, tools=[echo_tool(seen)])
    assert reply.data == GOOD and seen == [{"n": 5}]
    assert (
        "Measures n." in server.asked[1].prompt
        and "Result of tool measure:\nresult of 5" in server.asked[2].prompt
    )


def test_errors_of_tools_reach_the_model_but_a_spent_budget_ends_the_ask(bed: Bed) -> None:
    def bad(arguments: Mapping[str, Any]) -> str:
        raise UsageError("no such file")

    def spent(arguments: Mapping[str, Any]) -> str:
        raise BudgetError("time is up")

    server = bed.server(call("t", {}), answer("Fine."), call("t", {}))
    client = bed.client(server)
    assert client.ask(ASK, purpose="a", tools=[Tool("t", "", {"type": "object"}, bad)]).text == "Fine."
    assert "error: no such file" in server.asked[1].prompt
    with pytest.raises(BudgetError):
        client.ask(ASK, purpose="b", tools=[Tool("t", "", {"type": "object"}, spent)])


def test_long_results_are_bounded(bed: Bed) -> None:
    server = bed.server(call("t", {}), answer("Fine."))
    tool = Tool("t", "", {"type": "object"}, lambda arguments: "x" * 1_000_000)
    bed.client(server).ask(ASK, purpose="a", tools=[tool])
    assert len(server.asked[1].prompt) < 20_000 and "left out" in bed.log.of("tool")[0]["result"]


# -- the rest --------------------------------------------------------------------------------------------


def test_parallel_asks_have_ids_and_answers_of_their_own(bed: Bed) -> None:
    server = bed.server(default=lambda asked: answer(asked.messages[-1]["content"].upper()))
    client = bed.client(server)
    texts: dict[int, str] = {}

    def ask(number: int) -> None:
        texts[number] = client.ask([{"role": "user", "content": f"idea {number}"}], purpose="idea").text

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == {number: f"IDEA {number}" for number in range(8)}
    assert len({data["id"] for data in bed.log.of("response")}) == 8
    assert client.usage.input == 800


def test_the_key_is_in_no_event_and_no_error(bed: Bed) -> None:
    text = f"Your key is {KEY}, " * 40
    steps = [
        status(500, f"upstream refused Bearer {KEY}"),
        status(400, f"reasoning_effort is unknown to {KEY}"),
        answer(text, reasoning=text),
        call("measure", {"n": 1, "note": KEY}),
        answer(text),
        status(403, f"key {KEY} may not"),
    ]
    server = bed.server(*steps)
    control = Hook(lambda n: bed.time.sleep(0.6))
    client = bed.client(server, key=KEY, control=control)
    assert KEY not in client.ask(ASK, purpose="a").text
    tool = Tool("measure", "", {"type": "object"}, lambda arguments: f"{arguments} {KEY}")
    client.ask([*ASK, {"role": "user", "content": f"mind {KEY}"}], purpose="b", tools=[tool])
    error = failure(lambda: client.ask(ASK, purpose="c"))
    assert server.asked[0].key == KEY
    logged = json.dumps(bed.log.events)
    assert KEY not in logged and KEY not in str(error) and KEY not in repr(error)
    assert "[key]" in logged


def test_a_key_is_never_shown_in_pieces(bed: Bed) -> None:
    """Streamed 24 characters at a time, with a partial event for each."""
    text = f"abc {KEY} def " * 30
    server = bed.server(hold(text, after=0))
    ticks = iter(range(10_000_000))
    client = Client(
        LlmSettings(base_url=server.url),
        bed.log.context(control=Hook(lambda n: server.release())),
        environ={"OPENAI_API_KEY": KEY},
        clock=lambda: float(next(ticks)),
    )
    bed.clients.append(client)
    client.ask(ASK, purpose="a")
    parts = "".join(part["text"] for part in bed.log.of("partial"))
    assert "abc [key] def" in parts
    assert KEY not in parts and KEY[:12] not in parts


def test_a_missing_key_stops_before_anything_starts(tmp_path: Path) -> None:
    context = Recorder(tmp_path).context()
    with pytest.raises(UsageError, match="OPENAI_API_KEY"):
        Client(LlmSettings(), context, environ={})
    with pytest.raises(UsageError, match="OPENAI_API_KEY"):
        Client(LlmSettings(), context, environ={"OPENAI_API_KEY": " "})
    with pytest.raises(UsageError, match="OPENAI_BASE_URL must begin with http"):
        Client(LlmSettings(), context, environ={"OPENAI_BASE_URL": "localhost:8080"})
    with pytest.raises(UsageError, match="characters that no key has") as caught:
        Client(LlmSettings(), context, environ={"OPENAI_API_KEY": "sk-ключ\n5"})
    assert "sk-" not in str(caught.value)
    Client(LlmSettings(), context, environ={"OPENAI_BASE_URL": "http://localhost:8080/v1"}).close()
