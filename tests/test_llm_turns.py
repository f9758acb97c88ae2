"""Drafts that the model has evaluated within a turn: attempts like all others, bounded, resumed exactly."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path

import pytest
from llm_runs import Run, propose
from llm_server import LlmServer
from llm_steps import Asked, Step, answer, call, hang

from warpdeck.agents.base import NullControl
from warpdeck.agents.llm.beam import Slot
from warpdeck.agents.llm.history import past_attempts
from warpdeck.agents.llm.proposal import Proposal, ProposalError
from warpdeck.agents.llm.turns import Draft, Ending, Turns
from warpdeck.core.model import Evaluation


@pytest.fixture
def server():
    with LlmServer() as found:
        yield found


def results(asked: Asked) -> list[str]:
    """What the conversation's tools said."""
    return [str(m["content"]) for m in asked.messages if m["role"] == "tool"]


def drafting(asked: Asked) -> Step:
    """Two thirds of the best's time as a draft; then a little better, or the draft again."""
    question = str(asked.messages[1]["content"])
    if "different ideas" in question:
        return answer({"ideas": [{"idea": f"idea {asked.number}.{i}", "why": ""} for i in (1, 2)]})
    us = float((re.findall(r"takes ([\d.]+) us", question) or ["800"])[0])
    mark = int.from_bytes(question.encode()[-400:], "little") % 97  # parallel ideas differ
    draft = propose(f"takes {us * 0.66 + mark / 97:.2f} us", idea="a draft")
    if not results(asked):
        return call("evaluate", draft)
    if "attempt 4" in question:
        return answer(draft)
    return answer(propose(f"takes {us * 0.6 + mark / 97:.2f} us", idea="an answer"))


def test_a_draft_is_an_attempt_and_the_model_hears_of_it(tmp_path: Path, server: LlmServer) -> None:
    server.say(call("evaluate", propose("takes 500 us", idea="first")), answer(propose("takes 300 us")))
    run = Run(tmp_path, server)
    report = run.search(3)
    assert (report.steps, report.reason) == (3, "steps")
    (tool,) = run.of("tool")
    assert tool["name"] == "evaluate" and "ok" in tool["result"] and "case" in tool["result"]
    assert results(server.asked[1]) == [tool["result"]]
    _, draft, final = run.attempts
    assert (draft["attempt"], draft["draft"], draft["turn"], draft["kept"]) == (2, True, 2, True)
    assert (final["attempt"], final["draft"], final["turn"], final["kept"]) == (3, False, 2, True)
    assert [r["attempt"] for r in run.of("request")] == [2, 2]
    assert [d["variant"] for d in run.of("evaluation")] == ["naive", "attempt-002", "attempt-003"]
    assert run.nodes[4:9] == ["propose", "evaluate", "refine", "propose", "evaluate"]
    assert "evaluate: it has a draft judged" in str(server.asked[0].messages[0]["content"])


def test_a_draft_may_be_the_answer(tmp_path: Path, server: LlmServer) -> None:
    kernel = propose("takes 500 us")
    server.say(call("evaluate", kernel), answer(kernel), answer(propose("takes 400 us")))
    run = Run(tmp_path, server)
    assert run.search(3).steps == 3
    assert [(a["attempt"], a["draft"]) for a in run.attempts] == [(1, False), (2, False), (3, False)]
    assert len(run.of("evaluation")) == 3  # not evaluated twice


def test_what_fails_as_a_draft_is_the_model_s_to_mend(tmp_path: Path, server: LlmServer) -> None:
    server.say(
        call("evaluate", propose("fails to compile")),
        call("evaluate", {**propose("takes 5 us"), "launches": []}),
        call("evaluate", propose("takes 500 us")),
        call("evaluate", propose("takes 400 us")),
        answer(propose("takes 300 us")),
    )
    run = Run(tmp_path, server)
    assert run.search(4).steps == 4
    said = [tool["result"] for tool in run.of("tool")]
    assert "compile_error" in said[0] and "undefined_name" in said[0]
    assert "launches" in said[1] and "500" not in said[1]
    assert "ok" in said[2] and "2 drafts were evaluated" in said[3]
    assert [a["repairs"] for a in run.attempts] == [None] * 4 and "repair" not in run.nodes


def test_a_known_source_costs_no_attempt(tmp_path: Path, server: LlmServer) -> None:
    known = propose("takes 500 us")
    server.say(answer(known), call("evaluate", known), answer(propose("takes 300 us")))
    run = Run(tmp_path, server)
    run.search(3)
    assert "evaluated before" in run.of("tool")[0]["result"] and len(run.of("evaluation")) == 3


def test_a_spent_budget_ends_the_turn(tmp_path: Path, server: LlmServer) -> None:
    server.say(call("evaluate", propose("takes 500 us")), hang())
    run = Run(tmp_path, server)
    report = run.search(2)  # the initial kernel, and the draft
    assert (report.steps, report.reason) == (2, "steps")
    assert len(server.asked) <= 2 and run.nodes[-1] == "finalise"
    assert run.agent.history.best is not None and run.agent.history.best.number == 2


def test_a_tool_of_another_turn_keeps_off_the_device_in_the_end(tmp_path: Path, server: LlmServer) -> None:
    server.say(call("evaluate", propose("takes 500 us")), hang())
    run = Run(tmp_path, server)
    run.search(2)
    taken: list[bool] = []
    other = threading.Thread(target=lambda: taken.append(run.agent._inspector._lock.acquire(timeout=0.05)))
    other.start()
    other.join()
    assert taken == [False]  # the finalists are measured now


def test_without_drafts_there_is_no_tool(tmp_path: Path, server: LlmServer) -> None:
    server.say(answer(propose("takes 500 us")))
    run = Run(tmp_path, server, drafts=0)
    run.search(2)
    names = [tool["function"]["name"] for tool in server.asked[0].body["tools"]]
    assert "evaluate" not in names and "show_attempt" in names
    assert "Only a proposal is evaluated" in str(server.asked[0].messages[0]["content"])


def test_where_a_server_takes_no_tools_a_draft_is_written_as_text(tmp_path: Path) -> None:
    written = json.dumps({"tool": "evaluate", "arguments": propose("takes 500 us")})
    with LlmServer(answer(written), answer(propose("takes 300 us")), refuse=["tools"]) as server:
        run = Run(tmp_path, server)
        assert run.search(3).steps == 3
        assert "Result of tool evaluate" in server.asked[-1].prompt
    assert [(a["draft"], a["kept"]) for a in run.attempts] == [(False, True), (True, True), (False, True)]


def test_a_model_that_only_drafts_is_given_up(tmp_path: Path) -> None:
    with LlmServer(default=lambda a: call("evaluate", propose(f"takes {900 - a.number} us"))) as server:
        run = Run(tmp_path, server, stagnation=0)
        report = run.search(8)
    assert report.steps == 8  # two of each turn, until the steps are spent
    drafts = [a for a in run.attempts if a["draft"]]
    assert len(drafts) >= 6 and {len([d for d in drafts if d["turn"] == t["turn"]]) for t in drafts} <= {1, 2}
    assert any("tool" in a["reason"] for a in run.attempts if not a["variant"])


def test_a_beam_s_turns_draft_beside_each_other(tmp_path: Path) -> None:
    with LlmServer(default=drafting) as server:
        run = Run(tmp_path, server, strategy="beam", stagnation=0)
        assert run.search(9).steps == 9
    numbers = [a["attempt"] for a in run.attempts]
    assert sorted(numbers) == list(range(1, len(numbers) + 1))
    assert {a["round"] for a in run.attempts if a["draft"]} >= {2}
    done = [d["variant"] for d in run.of("evaluation")]
    assert len(done) == len(set(done)) == 9
    for tool in run.of("tool"):
        assert tool["name"] == "evaluate" and "attempt" in tool["result"]


@pytest.mark.parametrize("strategy", ["linear", "beam"])
@pytest.mark.parametrize(
    ("kind", "nth"),
    [
        *(("response", 1), ("response", 2), ("response", 4), ("tool", 1), ("tool", 2), ("request", 3)),
        *(("attempt", 3), ("attempt", 4), ("attempt", 6), ("evaluation", 2), ("evaluation", 4)),
    ],
)
def test_a_run_killed_within_a_turn_repeats_no_paid_request_and_no_evaluation(
    tmp_path: Path, strategy: str, kind: str, nth: int
) -> None:
    with LlmServer(default=drafting) as server:
        first = Run(tmp_path, server, strategy=strategy, stagnation=0)
        first.search(6)
        seen = [i for i, (k, _) in enumerate(first.events) if k == kind][nth - 1]
        past = first.events[: seen + 1]
        paid = {question(d) for k, d in past if k == "response"}
        known = [Evaluation.from_json(d) for k, d in past if k == "evaluation"]
        again = Run(tmp_path, server, strategy=strategy, stagnation=0, past=past)
        again.bench.restore([Evaluation.from_json(d) for k, d in past if k == "baseline"], known)
        report = again.search(6, told=[(e.candidate, e) for e in known])
    assert report.steps == 6
    assert not paid & {question(d) for d in again.of("response") if not d["from_log"]}
    before = {e.candidate.variant for e in known}
    done = [d["variant"] for d in again.of("evaluation")]
    assert not before & set(done) and len(done) == len(set(done)) == 6 - len(known)
    assert not before - {a.variant for a in past_attempts([*past, *again.events], tmp_path).values()}
    if strategy == "linear":
        told = {a.number: (a.idea, a.draft, a.turn, a.kept) for a in attempts(first, tmp_path, [])}
        assert told == {a.number: (a.idea, a.draft, a.turn, a.kept) for a in attempts(again, tmp_path, past)}


def question(response) -> str:
    """What makes a paid answer known again."""
    return str(response.get("key"))


def attempts(run: Run, folder: Path, past):
    return past_attempts([*past, *run.events], folder).values()


# -- the threads -----------------------------------------------------------------------------------------


def test_what_ends_a_turn_unexpectedly_is_raised_in_the_loop() -> None:
    def fail(slot: Slot):
        raise ValueError(f"slot {slot.number}")

    turns = Turns(NullControl())
    turns.start([Slot(7, None)], fail)
    assert turns.next() is None
    with pytest.raises(ValueError, match="slot 7"):
        turns.finish()
    assert not turns.slots


def test_a_turn_that_waits_ends_with_the_loop(tmp_path: Path, server: LlmServer) -> None:
    control = Ending(NullControl())
    turns = Turns(control)

    def wait(slot: Slot) -> ProposalError:
        kernel = Proposal("", "", "", (), {})
        return ProposalError([turns.evaluated(Draft(slot, kernel))])

    turns.start([Slot(1, None)], wait)
    assert turns.next() is not None
    control.over = True
    turns.join(10)
    assert not any(thread.is_alive() for thread in turns._threads)


def test_attempts_of_older_sessions_are_read(tmp_path: Path) -> None:
    old = json.loads('{"attempt": 3, "idea": "x", "kept": true}')
    (attempt,) = past_attempts([("attempt", old)], tmp_path).values()
    assert (attempt.turn, attempt.draft) == (None, False)
