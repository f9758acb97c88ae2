"""What a run that tries sources says of itself, reduced from its events."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warpdeck.core.errors import UsageError
from warpdeck.sessions import llm_state, snapshot
from warpdeck.sessions.events import Event, encode
from warpdeck.sessions.llm_state import ATTEMPTS, RECENT, REQUESTS, TAIL, TOOLS, LlmState
from warpdeck.sessions.state import RunState, reduce, reduce_all
from warpdeck.tui.llm_view import _about

START = {"workload": "gemm", "agent": "llm", "cases": [{"name": "256", "params": {"n": 256}}]}


def fold(*events: tuple[str, dict[str, Any]]) -> LlmState:
    state = reduce_all(Event(i + 1, 1000.0 + i, kind, data) for i, (kind, data) in enumerate(events))
    assert state.llm is not None
    return state.llm


def judged(candidate: str, status: str = "ok", ms: float | None = 1.0) -> dict[str, Any]:
    measured = [{"case": "256", "median_ms": ms, "ci95_ms": [0.99 * ms, 1.01 * ms]}] if ms else []
    return {
        "candidate": candidate,
        "variant": candidate,
        "config": {},
        "status": status,
        "score_ms": ms,
        "measurements": measured,
    }


def answer(name: str, *, cost: float | None = 0.01, **more: Any) -> dict[str, Any]:
    usage = {"input": 100, "cached": 60, "output": 40, "reasoning": 30}
    return {
        "id": name,
        "text": "text",
        "reasoning": "why",
        "usage": usage,
        "cost": cost,
        "seconds": 2.0,
        **more,
    }


def test_classic_runs_have_none():
    state = reduce_all(
        [Event(1, 0.0, "start", {**START, "agent": "tpe"}), Event(2, 1.0, "evaluation", judged("a"))]
    )
    assert state.llm is None


def test_nothing_that_a_model_wrote_commands_a_terminal():
    words = "\x1b]0;title\x07 \x1b[2J \x9b31m \u202etxet\u202c\x08 é\n[b]tab\t"
    events = [
        ("start", START),
        ("message", {"level": "info", "text": words}),
        ("node", {"node": "propose", "detail": words}),
        ("request", {"id": "r1", "purpose": "propose", "model": "m"}),
        ("partial", {"id": "r1", "text": words, "reasoning": words}),
        ("attempt", {"attempt": 1, "idea": words, "summary": words, "candidate": "a", "verdict": words}),
        ("evaluation", {**judged("a", "compile_error", None), "message": words}),
    ]
    asked = reduce_all(Event(i + 1, 1000.0 + i, kind, data) for i, (kind, data) in enumerate(events))
    told = ("response", answer("r1", text=words, reasoning=words))
    done = reduce(asked, Event(20, 1020.0, *told))
    done = reduce(done, Event(21, 1021.0, "state", {"state": "failed", "reason": words}))
    assert asked.llm and done.llm and done.llm.answer
    (request,), (attempt,) = asked.llm.requests, done.llm.attempts
    assert attempt.entry
    shown = [request.text, request.reasoning, done.reason, done.messages[0].text, done.failed[0].message]
    shown += [attempt.idea, attempt.summary, attempt.verdict, attempt.entry.message]
    shown += [done.llm.detail, done.llm.answer.text, done.llm.reasoning]
    clean = " ]0;title   [2J  31m  txet   é\n[b]tab\t"
    assert shown == [clean] * len(shown)


def test_an_attempt_is_told_twice_and_finds_its_evaluation_either_way():
    told = {"attempt": 1, "parent": None, "idea": "tile it", "summary": "32×32 tiles", "variant": "a1"}
    told |= {"candidate": "a", "source": "artifacts/attempts/1.cu", "launches": {"256": [{"entry": "k"}]}}
    llm = fold(
        ("start", START), ("baseline", judged("b", ms=2.0)), ("attempt", told), ("evaluation", judged("a"))
    )
    attempt = llm.attempt(1)
    assert attempt is not None and attempt.entry is not None
    assert (attempt.status, attempt.entry.speedup, attempt.kept) == ("ok", 2.0, None)
    llm = fold(
        ("start", START),
        ("evaluation", judged("a", "incorrect", None)),
        ("attempt", {**told, "kept": False, "verdict": "incorrect"}),
        ("attempt", {"attempt": 2, "parent": 1, "repairs": 1, "candidate": "b"}),
        ("attempt", {"attempt": 2, "kept": True, "verdict": "win"}),
    )
    first, second = llm.attempts
    assert (first.status, first.kept, first.source) == ("incorrect", False, "artifacts/attempts/1.cu")
    assert (second.parent, second.repairs, second.kept, second.candidate) == (1, 1, True, "b")
    assert second.status is None


def test_a_draft_becomes_the_answer_when_the_model_says_so():
    draft = {"attempt": 2, "variant": "a", "candidate": "c", "kept": True, "draft": True, "turn": 2}
    (attempt,) = fold(("attempt", draft)).attempts
    assert attempt.draft and "a draft" in _about(attempt, None)
    (attempt,) = fold(("attempt", draft), ("attempt", {**draft, "draft": False})).attempts
    assert not attempt.draft and "a draft" not in _about(attempt, None)


def test_a_baseline_can_be_an_attempt():
    llm = fold(("start", START), ("baseline", judged("a")), ("attempt", {"attempt": 1, "candidate": "a"}))
    assert llm.attempts[0].status == "ok"


def test_streaming_ends_with_the_answer():
    ask = {
        "id": "r1",
        "purpose": "propose",
        "attempt": 3,
        "model": "m",
        "params": {"reasoning_effort": "low"},
    }
    begun = [("start", START), ("request", ask), ("partial", {"id": "r1", "text": "ab"})]
    llm = fold(*begun, ("partial", {"id": "r1", "text": "cd"}), ("partial", {"id": "other", "text": "?"}))
    assert [(r.text, r.length, r.attempt) for r in llm.requests] == [("abcd", 4, 3)]
    assert (llm.model, llm.effort, llm.sent, llm.retries) == ("m", "low", 1, 0)
    llm = fold(*begun, ("request", {**ask, "retry": 1}), ("partial", {"id": "r1", "reasoning": "hm"}))
    assert (llm.requests[0].text, llm.requests[0].reasoning, llm.sent, llm.retries) == ("", "hm", 1, 1)
    llm = fold(*begun, ("response", {"id": "r1", "cost": 0.0, "usage": {}, "error": "no such model"}))
    assert llm.answer is not None and llm.answer.error == "no such model"
    assert (llm.usage.answers, llm.requests) == (0, ())
    llm = fold(*begun, ("response", answer("r1")))
    assert llm.requests == () and llm.answer is not None
    assert (llm.answer.text, llm.answer.purpose, llm.answer.attempt, llm.reasoning) == (
        "text",
        "propose",
        3,
        "why",
    )


def test_tokens_and_money_count_what_was_paid():
    events = [("start", START), ("response", answer("1")), ("response", answer("2", cost=None))]
    usage = fold(*events, ("response", answer("3", from_log=True))).usage
    assert (usage.answers, usage.input, usage.cached, usage.output, usage.reasoning) == (2, 200, 120, 80, 60)
    assert (usage.cost, usage.unpriced, usage.seconds) == (0.01, 1, 4.0)


def test_what_was_in_flight_ends_with_the_run():
    asked = [("start", START), ("request", {"id": "r", "model": "m"})]
    assert len(fold(*asked).requests) == 1
    assert fold(*asked, ("state", {"state": "interrupted"})).requests == ()
    assert fold(*asked, ("start", START)).requests == ()
    assert fold(*asked, ("start", START)).sent == 1


def test_another_precision_is_measured_and_never_the_best():
    events = [("start", START), ("baseline", judged("b", ms=2.0)), ("evaluation", judged("a", ms=1.0))]
    told = ("attempt", {"attempt": 2, "candidate": "t", "precision": "tf32"})
    for late in (judged("t", ms=0.5), {**judged("t", ms=0.5), "precision": "tf32"}):
        log = [*events, ("evaluation", late), told, ("evaluation", judged("c", ms=0.8))]
        state = reduce_all(Event(i, float(i), kind, data) for i, (kind, data) in enumerate(log, 1))
        assert [entry.candidate for entry in state.leaderboard] == ["c", "a", "t"]
        assert state.best is not None and state.best.candidate == "c"
        assert [record.score_ms for record in state.records] == [1.0, 0.8]
    only = reduce_all([Event(1, 0.0, "start", START), Event(2, 1.0, "evaluation", late)])
    assert only.best is None and only.leaderboard


def test_the_state_machine():
    nodes = ["evaluate", "propose", "evaluate"]
    llm = fold(("start", START), *(("node", {"node": n, "detail": f"{i}"}) for i, n in enumerate(nodes)))
    assert (llm.node, llm.detail, llm.nodes) == ("evaluate", "2", ("evaluate", "propose"))


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("node", {}),
        ("request", {}),
        ("partial", {"text": "x"}),
        ("response", {"id": "r", "usage": 3}),
        ("response", {"id": "r", "cost": "dear"}),
        ("tool", {}),
        ("attempt", {"attempt": "first"}),
        ("attempt", {"attempt": None}),
    ],
)
def test_damage_is_named(kind: str, data: dict[str, Any]):
    with pytest.raises(UsageError, match=rf"event 1 \({kind}\) is damaged"):
        reduce(RunState(), Event(1, 0.0, kind, data))


words = st.text(max_size=20)
names = st.sampled_from("abcd")
numbers = st.integers(1, 9)
logs = st.lists(
    st.one_of(
        st.tuples(st.just("node"), st.fixed_dictionaries({"node": names, "detail": words})),
        st.tuples(
            st.just("request"), st.fixed_dictionaries({"id": names, "attempt": numbers, "model": names})
        ),
        st.tuples(st.just("partial"), st.fixed_dictionaries({"id": names, "text": words})),
        st.tuples(st.just("response"), st.builds(answer, names, cost=st.none() | st.floats(0, 1))),
        st.tuples(st.just("tool"), st.fixed_dictionaries({"name": names, "seconds": st.floats(0, 1)})),
        st.tuples(
            st.just("attempt"),
            st.fixed_dictionaries({"attempt": numbers}, optional={"candidate": names, "kept": st.booleans()}),
        ),
        st.tuples(st.just("evaluation"), st.builds(judged, names)),
        st.tuples(
            st.just("state"), st.fixed_dictionaries({"state": st.sampled_from(["running", "interrupted"])})
        ),
    ),
    max_size=40,
)


@settings(deadline=None)
@given(logs, st.data())
def test_a_snapshot_anywhere_changes_nothing(log: list[tuple[str, dict[str, Any]]], data: st.DataObject):
    events = [
        Event(i, float(i), kind, payload) for i, (kind, payload) in enumerate([("start", START), *log], 1)
    ]
    whole = reduce_all(events)
    cut = data.draw(st.integers(0, len(events)))
    head, tail = snapshot.encode(reduce_all(events[:cut]))
    again = reduce_all(events[cut:], snapshot.decode(head, [], tail))
    assert again.llm == whole.llm
    assert again == whole


def test_memory_is_bounded_for_a_hundred_thousand_events():
    def events() -> Any:
        long = "x" * 3000
        for i in range(20_000):
            yield "request", {"id": f"r{i}", "purpose": long, "attempt": i, "model": "m"}
            yield "partial", {"id": f"r{i}", "text": long}
            yield "tool", {"id": f"r{i}", "name": long}
            yield "evaluation", judged(f"c{i}", "incorrect", None)
            told = {
                "attempt": i + 1,
                "candidate": f"c{i + 1}",
                "idea": long,
                "summary": "s",
                "source": "a.cu",
            }
            yield "attempt", told
        yield "response", {"id": "r19999", "text": long * 10, "reasoning": long * 10, "usage": {}}

    state = reduce(RunState(), Event(1, 0.0, "start", START))
    for seq, (kind, data) in enumerate(events(), 2):
        state = reduce(state, Event(seq, float(seq), kind, data))
    llm = state.llm
    assert llm is not None and state.seq == 100_002
    assert len(llm.attempts) == ATTEMPTS and llm.attempts[-1].number == 20_000
    assert len(llm.recent) == RECENT and len(llm.tools) == TOOLS and len(llm.requests) == REQUESTS - 1
    assert llm.answer is not None and len(llm.answer.text) == len(llm.reasoning) == TAIL
    assert (llm.sent, llm.tool_calls) == (20_000, 20_000)
    assert len(encode(llm_state.to_json(llm) or {})) < 4_000_000
