"""The real openai client against a server that fails: what is tried again, and what ends with one line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from llm_bed import ASK, GOOD, KEY, SCHEMA, Bed, failure
from llm_context import Hook, stop_when
from llm_steps import Step, answer, cut, hang, hold, huge, overflow, quota, raw, refusal, status

from warpdeck.agents.base import Stop
from warpdeck.agents.llm.errors import ContextOverflow
from warpdeck.core.errors import ExitCode


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    with Bed(tmp_path) as made:
        yield made


# -- retries ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        status(429, retry_after=7),
        status(500),
        status(502),
        status(503),
        status(504),
        status(529),
        cut("A half answer that breaks", after=12),
        raw('data: {"choices": [{"delta": {"content": "x"\n\n'),
        raw('data: {"error": {"message": "overloaded", "type": "overloaded_error"}}\n\n'),
        raw("<html>gateway</html>", content_type="text/html"),
        raw("data: [1, 2]\n\n"),
        raw('data: {"choices": [{"delta": {"content": "no end"}}]}\n\n'),
    ],
    ids=["429", "500", "502", "503", "504", "529", "cut", "json", "in-stream", "html", "list", "no-finish"],
)
@pytest.mark.parametrize("times", [1, 2])
def test_what_passes_is_tried_again(bed: Bed, bad: Step, times: int) -> None:
    server = bed.server(*[bad] * times, answer("Fine."))
    reply = bed.client(server).ask(ASK, purpose="propose")
    assert reply.text == "Fine." and len(server.asked) == times + 1
    waited = sum(bed.time.waits)
    assert waited >= 7 * times if bad.status == 429 else waited >= 0.5
    assert [data["id"] for data in bed.log.of("request")] == ["r1"] * (times + 1)
    assert len(bed.log.of("response")) == 1
    assert [message["level"] for message in bed.log.of("message")] == ["warning"] * times


def test_retries_are_bounded_and_grow(bed: Bed) -> None:
    server = bed.server(default=status(503, "down"))
    error = failure(lambda: bed.client(server, retries=4).ask(ASK, purpose="propose"))
    assert error.kind == "server" and "503" in str(error) and "tried 5 times" in str(error)
    assert len(server.asked) == 5
    assert 0.5 * 15 <= sum(bed.time.waits) <= 15.1  # 1 + 2 + 4 + 8 s, each by 0.5 to 1
    assert max(bed.time.waits) <= 0.25  # between two looks at the control


def test_a_server_that_wants_an_hour_has_failed(bed: Bed) -> None:
    server = bed.server(status(429, retry_after=3600))
    error = failure(lambda: bed.client(server).ask(ASK, purpose="propose"))
    assert "3600 s" in str(error) and len(server.asked) == 1


def test_a_hanging_server_is_left_after_the_timeout(bed: Bed) -> None:
    server = bed.server(hang(), answer("Fine."))
    assert bed.client(server, request_timeout_s=0.3).ask(ASK, purpose="propose").text == "Fine."


def test_a_stalled_stream_is_left_after_the_timeout(bed: Bed) -> None:
    server = bed.server(hold("A text that stalls", after=4), answer("Fine."))
    assert bed.client(server, request_timeout_s=0.3).ask(ASK, purpose="propose").text == "Fine."


def test_no_server_at_all(bed: Bed) -> None:
    server = bed.server()
    server.close()
    bed.servers.clear()
    error = failure(lambda: bed.client(server, retries=1).ask(ASK, purpose="propose"))
    assert error.kind == "server" and "can't reach 127.0.0.1" in str(error) and "refused" in str(error)


@pytest.mark.parametrize("where", ["waiting", "streaming", "back-off"])
def test_stop_works_at_once(bed: Bed, where: str) -> None:
    step = {"waiting": hang(), "streaming": hold("A text that stalls", after=4), "back-off": status(503)}[
        where
    ]
    server = bed.server(step)
    control = stop_when(lambda: bool(server.asked) and (where != "back-off" or bool(bed.log.of("message"))))
    with pytest.raises(Stop):
        bed.client(server, control=control).ask(ASK, purpose="propose")
    assert bed.log.of("response")[-1]["error"] == "stopped"
    assert len(server.asked) == 1


def test_a_pause_doesnt_count_as_the_servers_silence(bed: Bed) -> None:
    server = bed.server(hold("A long text of many words", after=4))

    def pause(checks: int) -> None:
        if checks == 1:
            bed.time.sleep(1000.0)
        else:
            server.release()

    client = bed.client(server, control=Hook(pause))
    assert client.ask(ASK, purpose="propose").text == "A long text of many words"
    assert len(server.asked) == 1


# -- what can't be mended --------------------------------------------------------------------------------


def test_a_wrong_key(bed: Bed) -> None:
    server = bed.server(key="another-key-entirely")
    error = failure(lambda: bed.client(server, key=KEY).ask(ASK, purpose="propose"))
    assert error.kind == "key" and "OPENAI_API_KEY" in str(error)
    assert len(server.asked) == 1


def test_an_unknown_model_names_near_ones(bed: Bed) -> None:
    server = bed.server(models=["qwen3-coder-30b", "llama-4"])
    error = failure(lambda: bed.client(server, model="qwen3-coder").ask(ASK, purpose="propose"))
    assert error.kind == "model" and "qwen3-coder-30b" in str(error)


@pytest.mark.parametrize(
    ("step", "kind", "word"),
    [
        (quota(), "quota", "nothing left"),
        (status(402, "Insufficient Balance"), "quota", "nothing left"),
        (status(403, "Country not supported"), "forbidden", "Country"),
        (status(404, "no such route"), "request", "/v1"),
        (status(400, "flagged", error_code="content_policy_violation"), "refused", "declines"),
        (refusal("I won't."), "refused", "I won't."),
        (answer("Well", finish="content_filter"), "refused", "filter"),
    ],
)
def test_final_failures_are_not_repeated(bed: Bed, step: Step, kind: str, word: str) -> None:
    server = bed.server(step)
    error = failure(lambda: bed.client(server).ask(ASK, purpose="propose"))
    assert error.kind == kind and word in str(error) and len(server.asked) == 1


@pytest.mark.parametrize(
    "step",
    [
        overflow(4096),
        status(
            400,
            "request (5000 tokens) exceeds the available context size (4096 tokens)",
            kind="exceed_context_size_error",
        ),
        status(413, "Request too large"),
        raw('data: {"error": {"message": "context length exceeded", "code": "context_length_exceeded"}}\n\n'),
    ],
    ids=["openai", "llama.cpp", "413", "in-stream"],
)
def test_an_overflow_is_told_apart(bed: Bed, step: Step) -> None:
    server = bed.server(step)
    with pytest.raises(ContextOverflow) as caught:
        bed.client(server).ask(ASK, purpose="propose", schema=SCHEMA)
    assert caught.value.kind == "context" and len(server.asked) == 1
    if step.error is not None and step.status == 400:
        assert caught.value.limit == 4096


def test_a_cut_answer_is_asked_for_again_shorter(bed: Bed) -> None:
    server = bed.server(answer('{"idea": "lo', finish="length"), answer(GOOD))
    assert bed.client(server).ask(ASK, purpose="propose", schema=SCHEMA).data == GOOD
    assert "shorter" in server.asked[1].prompt
    server.say(*[answer("", finish="length")] * 3)
    error = failure(lambda: bed.client(server).ask(ASK, purpose="again", schema=SCHEMA))
    assert error.kind == "length" and "answer_tokens" in str(error)


def test_empty_answers(bed: Bed) -> None:
    server = bed.server(answer(""), answer("Now."))
    assert bed.client(server).ask(ASK, purpose="propose").text == "Now."


@pytest.mark.parametrize("streamed", [True, False])
def test_a_huge_answer_is_cut_and_not_kept(bed: Bed, streamed: bool) -> None:
    server = bed.server(huge(12), answer(GOOD), refuse=() if streamed else ["stream"])
    client = bed.client(server)
    assert client.ask(ASK, purpose="propose", schema=SCHEMA).data == GOOD
    assert len(json.dumps(bed.log.events)) < 1_500_000
    if streamed:  # cut before the server could count
        assert client.usage.output >= 250_000 and client.usage.estimated


def test_a_spent_budget_sends_nothing_more(bed: Bed) -> None:
    server = bed.server(answer("One."), answer("Two."))
    client = bed.client(server, max_tokens=150)
    client.ask(ASK, purpose="one")
    error = failure(lambda: client.ask(ASK, purpose="two"))
    assert error.kind == "budget" and len(server.asked) == 1
    assert "a new run --from this session" in str(error)  # --resume keeps the budget


def test_requests_under_way_count_and_what_no_longer_fits_is_not_sent(bed: Bed) -> None:
    server = bed.server(answer("One."), hold("Two.", 0), answer("Three."))  # 150 tokens each, 50 of them said
    client = bed.client(server, max_tokens=205)
    client.ask(ASK, purpose="one")
    with ThreadPoolExecutor() as pool:
        second = pool.submit(client.ask, ASK, purpose="two")  # 150 are spent: it may be sent
        server.wait_for(2)
        error = failure(lambda: client.ask(ASK, purpose="three"))  # 150, and some 58 under way
        server.release()
        second.result(30)
    assert error.kind == "budget" and "requests under way included" in str(error)
    assert len(server.asked) == 2 and error.exit_code == ExitCode.BUDGET


def test_nothing_is_sent_after_a_stop(bed: Bed) -> None:
    server = bed.server(answer("One."))
    client = bed.client(server, control=stop_when(lambda: True))
    with pytest.raises(Stop):
        client.ask(ASK, purpose="one")
    assert not server.requests
