"""The parts of the client alone: settings, event streams, errors, plans, keys, logs."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import httpx2
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warpdeck.agents.llm.answer import Answer, ChatCollector
from warpdeck.agents.llm.errors import failure_of
from warpdeck.agents.llm.negotiate import FORMS, Plan, Turn
from warpdeck.agents.llm.past import Past, key_of
from warpdeck.agents.llm.prices import Usage, cost_of
from warpdeck.agents.llm.redact import Redactor
from warpdeck.agents.llm.settings import LlmSettings
from warpdeck.agents.llm.wire import DONE, MAX_LINE, Garbled, StreamError, decode
from warpdeck.core.errors import UsageError

KEY = "sk-test-0123456789abcdefghij"
SCHEMA = {"type": "object", "properties": {"idea": {"type": "string"}}, "required": ["idea"]}


# -- settings ----------------------------------------------------------------------------------------------


def test_settings_come_as_values_or_texts_and_go_back() -> None:
    given = {
        "model": "qwen",
        "effort": "high",
        "base_url": "http://localhost:1234/v1/",
        "strategy": "beam",
        "parents": "3",
        "max_tokens": "1000",
        "max_cost": 2.5,
        "target": "0.9",
        "counters": "true",
        "docs": ["a", "b"],
        "prices": {"qwen": {"input": 1, "output": "2"}},
        "request_timeout_s": "30",
    }
    made = LlmSettings.from_options(given)
    assert made.base_url == "http://localhost:1234/v1" and made.parents == 3 and made.counters is True
    assert made.price() == {"input": 1.0, "output": 2.0} and made.docs == ("a", "b")
    assert LlmSettings.from_options(json.loads(json.dumps(made.to_options()))) == made
    assert LlmSettings.from_options({}) == LlmSettings() and LlmSettings().to_options() == {}
    assert LlmSettings.from_options({"max_tokens": "", "effort": "", "base_url": ""}).max_tokens is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("modle", "x"),
        ("model", " "),
        ("effort", "huge"),
        ("base_url", "localhost:80"),
        ("base_url", "http://"),
        ("base_url", "http://x:99999999/v1"),
        ("base_url", "https://user:secret@host/v1"),
        ("strategy", "best"),
        ("parents", 0),
        ("parents", 1.5),
        ("ideas", "two"),
        ("max_tokens", -1),
        ("max_cost", "nan"),
        ("max_cost", 1.0),  # of a model without a price
        ("target", 1.2),
        ("counters", "maybe"),
        ("docs", 3),
        ("prices", {"m": {"input": 1}}),
        ("prices", {"m": {"input": -1, "output": 1}}),
        ("prices", "cheap"),
        ("request_timeout_s", 0),
        ("retries", -1),
    ],
)
def test_bad_settings_are_one_plain_line(name: str, value: Any) -> None:
    with pytest.raises(UsageError) as caught:
        LlmSettings.from_options({name: value})
    assert "\n" not in str(caught.value) and name in str(caught.value) and "secret" not in str(caught.value)


def test_costs() -> None:
    price = {"input": 2.0, "cached": 0.5, "output": 8.0}
    assert cost_of(Usage(1_000_000, 400_000, 100_000), price) == pytest.approx(1.2 + 0.2 + 0.8)
    assert cost_of(Usage(1_000_000, 400_000, 0), {"input": 2.0, "output": 8.0}) == pytest.approx(2.0)
    assert cost_of(Usage(1, 0, 1), None) is None


# -- event streams -----------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.dictionaries(st.text(max_size=4), st.text(max_size=12), min_size=1, max_size=3), max_size=5),
    st.lists(st.integers(1, 40), min_size=1, max_size=20),
    st.sampled_from(["\n", "\r\n"]),
)
def test_streams_decode_alike_however_they_are_cut(
    sent: list[dict[str, str]], cuts: list[int], end: str
) -> None:
    lines = [
        f": comment{end}event: x{end}data: {json.dumps(item, ensure_ascii=False)}{end}{end}" for item in sent
    ]
    data = ("".join(lines) + f"data: [DONE]{end}{end}data: garbage{end}{end}").encode()
    pieces, at, turn = [], 0, 0
    while at < len(data):
        size = cuts[turn % len(cuts)]
        pieces.append(data[at : at + size])
        at, turn = at + size, turn + 1
    *found, last = decode(pieces)
    assert found == sent and last is DONE


@pytest.mark.parametrize("data", [b"data: {\n\n", b"data: 3\n\n", b"data: \xff\n\n"])
def test_what_is_no_json_object_is_garbled(data: bytes) -> None:
    with pytest.raises(Garbled):
        list(decode([data]))


def test_endless_lines_and_events_are_cut() -> None:
    megabyte = b"x" * (1 << 20)
    for first, then in ((b"data: ", megabyte), (b"", b"data: " + megabyte + b"\n")):
        taken = 0

        def endless(first: bytes = first, then: bytes = then) -> Any:
            nonlocal taken
            yield first
            while True:
                taken += 1
                yield then

        with pytest.raises(Garbled, match="more than 8 MB"):
            list(decode(endless()))
        assert taken <= (MAX_LINE >> 20) + 1


def test_tool_calls_without_an_index_or_with_whole_arguments() -> None:
    collector = ChatCollector()
    for part in (
        {"id": "a", "function": {"name": "f", "arguments": '{"n":'}},
        {"id": "a", "function": {"arguments": " 1}"}},
        {"id": "b", "function": {"name": "g", "arguments": {"m": 2}}},
    ):
        collector.feed({"choices": [{"delta": {"tool_calls": [part]}}]})
    calls = collector.answer().calls
    assert [(c.id, c.name, json.loads(c.arguments)) for c in calls] == [
        ("a", "f", {"n": 1}),
        ("b", "g", {"m": 2}),
    ]


@settings(max_examples=100, deadline=None)
@given(
    st.recursive(
        st.one_of(st.none(), st.text(max_size=5), st.integers()),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(
                st.sampled_from(
                    ["choices", "delta", "message", "content", "tool_calls", "function", "usage"]
                ),
                inner,
                max_size=4,
            ),
        ),
        max_leaves=12,
    )
)
def test_a_collector_takes_any_json_or_refuses_it_plainly(value: Any) -> None:
    collector = ChatCollector()
    if isinstance(value, dict):
        try:
            collector.feed(value)
        except (AttributeError, IndexError, KeyError, TypeError):
            return  # what `wire` calls garbled
        assert isinstance(collector.answer(), Answer)


# -- errors ------------------------------------------------------------------------------------------------


def _error(status: int, body: Any, **headers: str) -> openai.APIStatusError:
    request = httpx2.Request("POST", "http://host/v1")
    response = httpx2.Response(status, headers=headers, request=request)
    return openai.APIStatusError("failed", response=response, body=body)


NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Thu, 01 Jan 2026 00:00:30 GMT"}, 30.0),
        ({"retry-after": "Wed, 31 Dec 2025 00:00:30 GMT"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "-1"}, None),
        ({}, None),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    failure = failure_of(
        _error(429, {"message": "slow"}, **headers), model="m", url="http://host/v1", now=NOW
    )
    assert failure.transient and failure.retry_after_s == seconds


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (404, "model 'x' not found, try pulling it first", "model"),  # Ollama
        (404, "The model `x` does not exist.", "model"),  # vLLM
        (400, "x is not a valid model ID", "model"),  # OpenRouter
        (404, "No endpoints found that support tool use.", "request"),  # OpenRouter
        (400, '"auto" tool choice requires --enable-auto-tool-choice', "request"),  # vLLM
        (400, "the request exceeds the available context size. try increasing it", "context"),  # llama.cpp
        (400, "Input length 9000 exceeds the maximum context length of 8192 tokens", "context"),
        (
            400,
            "'max_tokens' is too large: 9000. This model's maximum context length is 8192 tokens.",
            "request",
        ),  # vLLM
        (500, "Internal error", "server"),
        (529, "Overloaded", "server"),
    ],
)
def test_what_servers_say(status: int, message: str, kind: str) -> None:
    failure = failure_of(_error(status, {"message": message}), model="x", url="http://host/v1")
    assert failure.kind == kind


@settings(max_examples=200, deadline=None)
@given(
    st.integers(300, 999),
    st.one_of(
        st.none(),
        st.text(),
        st.lists(st.integers()),
        st.dictionaries(
            st.sampled_from(["message", "code", "type", "param", "detail", "error"]),
            st.one_of(
                st.none(),
                st.integers(),
                st.text(),
                st.dictionaries(st.text(max_size=3), st.text()),
                st.lists(st.text()),
            ),
        ),
    ),
)
def test_any_error_is_one_plain_line(status: int, body: Any) -> None:
    failure = failure_of(_error(status, body), model="m", url="http://host/v1")
    line = str(failure.error())
    assert line and line.isprintable() and len(line) < 1000
    if isinstance(body, dict):
        again = failure_of(StreamError(body), model="m", url="http://host/v1")
        assert str(again.error()).isprintable()


# -- plans -------------------------------------------------------------------------------------------------

WORDS = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        ["reasoning_effort: no", "tools", "response_format", "stream: bad", "reasoning_content missing", ""]
    ),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(WORDS, max_size=20))
def test_rejections_end(words: list[str]) -> None:
    """Whatever a server says, a plan gets simpler with each rejection, until nothing is left."""
    turn = Turn(
        [{"role": "user", "content": "x"}], SCHEMA, [{"name": "t", "description": "", "parameters": {}}]
    )
    options = LlmSettings(answer_tokens=100)
    plan, steps = Plan(), 0
    for said in [*words, *["no"] * 20]:
        better = plan.without(plan.params(turn, options), said)
        if better is None:
            break
        assert better[0] != plan
        plan, steps = better[0], steps + 1
    assert steps <= 12 and Plan.from_data(json.loads(json.dumps(plan.to_data()))) == plan


def test_the_named_parameter_goes_before_what_its_message_mentions() -> None:
    turn = Turn([{"role": "user", "content": "x"}], SCHEMA)
    plan = Plan()
    better = plan.without(plan.params(turn, LlmSettings()), "reasoning_effort: not with response_format")
    assert better is not None and better[0].form == FORMS[0] and better[0].dropped == {"reasoning_effort"}


def test_a_limit_that_is_too_large_goes_whatever_it_is_called() -> None:
    turn = Turn([{"role": "user", "content": "x"}], SCHEMA)
    options = LlmSettings(answer_tokens=9000)
    plan = Plan()
    better = plan.without(plan.params(turn, options), "'max_tokens' is too large: 9000")
    assert better is not None and better[0].params(turn, options)["max_tokens"] == 9000
    again = better[0].without(better[0].params(turn, options), "'max_tokens' is too large: 9000")
    assert again is not None and not {"max_tokens", "max_completion_tokens"} & set(
        again[0].params(turn, options)
    )


def test_two_threads_lessons_add_up() -> None:
    one, two = Plan(form="json_object", dropped=frozenset({"a"})), Plan(tools=False, dropped=frozenset({"b"}))
    assert one.merged(two) == Plan("json_object", False, True, False, frozenset({"a", "b"}))


def test_reasoning_is_given_back_to_servers_that_want_it() -> None:
    entries = [
        {
            "role": "assistant",
            "content": "",
            "calls": [{"id": "1", "name": "t", "arguments": "{}"}],
            "reasoning": "hm",
        },
        {"role": "tool", "call": "1", "name": "t", "content": "r"},
    ]
    assert "reasoning_content" not in Plan().messages(Turn(entries))[0]
    better = Plan().without({}, "Missing `reasoning_content` field in the assistant message")
    assert better is not None and better[0].messages(Turn(entries))[0]["reasoning_content"] == "hm"


# -- keys and logs -----------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.one_of(st.text(max_size=20), st.just(KEY), st.just(KEY[:9])), max_size=6), st.integers(1, 30)
)
def test_the_key_never_shows_however_a_text_grows(parts: list[str], size: int) -> None:
    text = "".join(parts)
    redactor = Redactor(KEY)
    assert KEY not in redactor.text(text)
    shown, pending = "", ""
    for at in range(0, len(text), size):
        pending += text[at : at + size]
        safe = redactor.safe_length(pending)
        shown, pending = shown + redactor.text(pending[:safe]), pending[safe:]
    assert KEY not in shown + redactor.text(pending)


def test_other_keys_and_nested_data() -> None:
    data = {"a": [f"x {KEY}", {"Bearer abcdefghijklmnopqrst": 1}], "b": ("sk-proj-abcdefghijklmnop12345", 3)}
    assert KEY not in (text := json.dumps(Redactor(KEY).data(data)))
    assert "sk-proj" not in text and "abcdefghijklmnopqrst" not in text


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["request", "response", "tool", "node"]),
            st.dictionaries(
                st.sampled_from(
                    ["id", "key", "plan", "usage", "cost", "call", "result", "error", "from_log", "text"]
                ),
                st.one_of(
                    st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.just({}), st.just("r7")
                ),
                max_size=8,
            ),
        ),
        max_size=6,
    )
)
def test_a_damaged_log_is_read_as_far_as_it_goes(events: list[tuple[str, dict[str, Any]]]) -> None:
    past = Past(events)
    assert past.last_id in (0, 7) and past.usage.total >= 0


def test_a_request_is_the_same_whatever_the_server_takes() -> None:
    turn = Turn([{"role": "user", "content": "x"}], SCHEMA)
    assert key_of("m", "p", turn) == key_of("m", "p", Turn([{"content": "x", "role": "user"}], dict(SCHEMA)))
    others = {key_of("n", "p", turn), key_of("m", "q", turn), key_of("m", "p", Turn(turn.entries))}
    assert len(others | {key_of("m", "p", turn)}) == 4
