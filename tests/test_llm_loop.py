"""The LLM agent's loop: the real client, a real local server, benches whose times are known."""

from __future__ import annotations

import threading

import pytest
from llm_runs import Run, beam_answer, failing_beam_answer, propose
from llm_server import LlmServer
from llm_steps import answer, call, cut, hang, huge, overflow, quota, raw, refusal, status

from warpdeck.agents.base import Context, Limited, NullControl, Stop, search
from warpdeck.agents.llm.errors import LlmError
from warpdeck.agents.llm.loop import LlmAgent
from warpdeck.agents.llm.settings import LlmSettings


@pytest.fixture
def server():
    with LlmServer() as found:
        yield found


def test_a_linear_run_improves_repairs_and_keeps_only_what_wins(tmp_path, server):
    server.say(
        answer(propose("takes 400 us", idea="tile it"), reasoning="shared memory"),
        answer(propose("fails to compile", idea="vectorise")),
        answer(propose("computes the wrong thing", idea="vectorise, mended")),
        answer(propose("takes 200 us", idea="vectorise, mended again")),
        answer(propose("takes 200.2 us", idea="no difference")),
        answer(propose("takes 300 us", idea="a step back")),
    )
    run = Run(tmp_path, server)
    report = run.search(7)
    assert report.steps == 7 and report.reason == "steps"
    kept = {a["attempt"]: a["kept"] for a in run.attempts}
    assert kept == {1: True, 2: True, 3: False, 4: False, 5: True, 6: False, 7: False}
    by_number = {a["attempt"]: a for a in run.attempts}
    assert [by_number[n]["repairs"] for n in (4, 5)] == [3, 4]
    assert [by_number[n]["parent"] for n in (2, 3, 4, 5, 6, 7)] == [1, 2, 2, 2, 5, 5]
    assert [by_number[n]["verdict"] for n in (2, 3, 5, 7)] == ["win", None, "win", "loss"]
    assert "times as fast as attempt 2" in by_number[5]["reason"]
    assert by_number[2]["launches"]["256"] == [
        {"entry": "tile", "grid": [16, 16, 1], "block": [16, 16, 1], "shared": 0}
    ]
    assert (tmp_path / by_number[5]["source"]).read_text() == propose("takes 200 us")["source"]
    repair = server.asked[2].messages[-1]["content"]
    assert "Attempt 3 failed: compile_error" in repair and "undefined_name" in repair
    assert "got 1, expected 2" in server.asked[3].messages[-1]["content"]
    last = server.asked[5].messages[-1]["content"]
    assert ("The best kernel so far, attempt 5" in last and "within noise" in last) or "not faster" in last


def test_every_transition_is_told_and_legal(tmp_path, server):
    server.say(answer(propose("fails to compile")), answer(propose("takes 100 us")))
    run = Run(tmp_path, server)
    run.search(3)
    assert run.nodes == [
        *("initialise", "reference", "initial", "refine"),
        *("propose", "evaluate", "refine", "repair", "evaluate", "refine", "finalise"),
    ]


def test_a_difference_within_noise_is_not_kept(tmp_path, server):
    server.say(*(answer(propose(f"takes {us} us", idea=str(us))) for us in (400, 399.9, 399.8, 399.7)))
    run = Run(tmp_path, server)
    run.search(5)
    assert [a["kept"] for a in run.attempts] == [True, True, False, False, False]
    assert {a["verdict"] for a in run.attempts[2:]} <= {"tie", "loss"}


def test_a_device_that_times_nothing_keeps_the_latest_correct(tmp_path, server):
    server.say(answer(propose("one")), answer(propose("computes the wrong thing")), answer(propose("two")))
    run = Run(tmp_path, server, emulated=True)
    run.search(4)
    assert [a["kept"] for a in run.attempts] == [True, True, False, True]
    assert run.bench.finish().to_json()["best"]["variant"] == "attempt-004"
    assert "nothing is timed here" in server.asked[0].messages[0]["content"]


def test_the_prompt_has_the_rules_the_task_and_the_device(tmp_path, server):
    server.say(answer(propose("takes 100 us")))
    Run(tmp_path, server).search(2)
    system, user = (m["content"] for m in server.asked[0].messages)
    for wanted in (
        'extern "C" __global__ void NAME(const float *__restrict__ a, const float *__restrict__ b,'
        " float *__restrict__ c, long long m, long long n, long long k)",
        "132 SMs",
        "compute capability 9.0",
        "227 KiB shared memory",
        "physical floor",
        "def reference(a",
        "10 warm-ups, up to 100 samples",
    ):
        assert wanted in system, wanted
    assert "odd" not in system.partition("Performance cases")[2].partition("Correctness")[0]
    assert "attempt 1" in user and "physical floor's speed" in user


# -- a server that misbehaves ----------------------------------------------------------------------------


def test_the_run_survives_what_a_server_does(tmp_path, server):
    server.say(
        status(429, retry_after=0),
        status(500),
        answer(propose("takes 500 us")),
        cut(propose("takes 400 us"), after=40),
        answer(propose("takes 400 us")),
        answer("this is no JSON"),
        answer({"wrong": "schema"}),
        answer(propose("takes 300 us")),
        call("show_attempt", {"attempt": 3, "what": "source", "other": None}),
        answer(propose("takes 200 us")),
        refusal(),
        answer(propose("takes 100 us")),
    )
    run = Run(tmp_path, server, stagnation=0)
    run.search(6)
    assert [a["kept"] for a in run.attempts] == [True, True, True, True, True, False, True]
    assert run.attempts[5]["variant"] == "" and "no usable proposal" in run.attempts[5]["reason"]
    (tool,) = run.of("tool")
    assert "takes 400 us" in tool["result"]


@pytest.mark.parametrize(
    "steps",
    [
        [huge(0.2)] * 20,
        [raw("garbage")] * 20,
        [answer("no JSON at all")] * 40,
        [refusal()] * 9,
        [call("no_such_tool", {})] * 80,
    ],
    ids=["huge", "garbage", "invalid", "refusals", "tool loop"],
)
def test_a_useless_server_ends_the_run_with_one_line(tmp_path, server, steps):
    server.say(*steps)
    run = Run(tmp_path, server, retries=0)
    try:
        run.search(10)
    except LlmError as error:
        said = str(error)
    else:
        assert run.agent.stopped is not None
        said = run.agent.stopped
        assert run.nodes[-1] == "finalise" and f"stopped: {said}" in run.messages
    assert said and "\n" not in said
    assert run.bench.steps == 1  # the initial kernel


def test_what_makes_the_start_impossible_is_raised(tmp_path):
    with LlmServer(key="secret-key-of-the-server") as server:
        run = Run(tmp_path, server)
        with pytest.raises(LlmError, match="key") as error:
            run.search(3)
    assert error.value.kind == "key" and "\n" not in str(error.value)


def test_a_quota_that_ends_midway_keeps_what_was_reached(tmp_path, server):
    server.say(answer(propose("takes 100 us")), quota())
    run = Run(tmp_path, server)
    assert run.search(9).reason == "exhausted"
    assert "nothing left to spend" in (run.agent.stopped or "")
    assert run.bench.finish().to_json()["best"]["variant"] == "attempt-002"


def test_an_overflowing_context_is_condensed_and_the_run_goes_on(tmp_path, server):
    server.say(*(answer(propose(f"takes {us} us", idea=f"idea {us}")) for us in range(700, 300, -50)))
    server.say(overflow(), overflow(), answer(propose("takes 100 us")))
    run = Run(tmp_path, server)
    run.search(10)
    full, once, twice = (len(asked.messages[-1]["content"]) for asked in server.asked[8:11])
    assert full > once > twice
    assert run.attempts[-1]["kept"]
    assert sum("condensed" in text for text in run.messages) == 2


# -- budgets ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"max_tokens": 600}, "600 tokens are spent, of 600"),
        (
            {"max_cost": 0.002, "prices": {"gpt-5-mini": {"input": 1.0, "output": 20.0}}},
            "USD are spent, of 0.002",
        ),
        ({"stagnation": 2}, "no win in 2 attempts"),
        ({"target": 0.01}, "1% were wanted"),
    ],
    ids=["tokens", "money", "stagnation", "target"],
)
def test_each_budget_ends_the_run_and_says_so(tmp_path, options, reason):
    counter = iter(range(1, 100))
    with LlmServer(default=lambda asked: answer(propose(f"takes {900 + next(counter)} us"))) as server:
        run = Run(tmp_path, server, **{"stagnation": 0, **options})
        if "target" in options:
            server.say(answer(propose("takes 40 us")))
        ended = run.search(50).reason
    assert ended == ("budget" if {"max_tokens", "max_cost"} & set(options) else "exhausted")
    assert reason in (run.agent.stopped or "")
    assert any(reason in text for text in run.messages)
    assert run.nodes[-1] == "finalise"


def test_time_ends_the_run(tmp_path):
    seconds = iter(range(100))
    with LlmServer(default=lambda asked: answer(propose(f"takes {900 + asked.number} us"))) as server:
        run = Run(tmp_path, server, stagnation=0)
        report = search(run.bench, run.agent, steps=50, time_limit_s=20, clock=lambda: float(next(seconds)))
    assert report.reason == "time" and report.steps < 20


def test_time_ends_a_request_that_hangs(tmp_path, server):
    control = Limited(NullControl(), 20.0, clock=lambda: 100.0 if server.asked else 0.0)
    server.say(hang())
    run = Run(tmp_path, server)
    context = Context(tmp_path, run.context.emit, control=control)
    run.agent = LlmAgent(run.bench, context, LlmSettings(base_url=server.url))
    report = search(run.bench, run.agent, steps=5, control=control)
    assert (report.reason, report.steps) == ("time", 1)


def test_a_stop_while_the_model_thinks_ends_the_run(tmp_path, server):
    class Stopping:
        def check(self) -> None:
            if server.asked:
                raise Stop("stopped by a test")

    server.say(hang())
    run = Run(tmp_path, server)
    context = Context(tmp_path, run.context.emit, control=Stopping())
    run.agent = LlmAgent(run.bench, context, LlmSettings(base_url=server.url))
    assert run.search(5).reason == "stopped"


# -- beam ------------------------------------------------------------------------------------------------


def test_beam_asks_in_parallel_and_evaluates_in_order(tmp_path):
    with LlmServer(default=beam_answer) as server:
        run = Run(tmp_path, server, strategy="beam", stagnation=0)
        report = run.search(7)
    assert report.steps == 7
    by_number = {a["attempt"]: a for a in run.attempts}
    assert [by_number[n]["parent"] for n in (2, 3)] == [1, 1]  # one parent: two ideas
    second = [by_number[n] for n in (4, 5, 6, 7)]
    assert len({a["parent"] for a in second}) == 2 and all(a["round"] == 4 for a in second)
    order = [data["variant"] for data in run.of("evaluation")]
    assert order[1:] == [f"attempt-{n:03d}" for n in range(2, 8)]
    assert run.nodes.count("ideas") == 2 and run.nodes.count("propose") == 2
    assert [r["purpose"] for r in run.of("request")].count("ideas") == 3


def test_beam_repairs_what_failed_beside_the_next_round_s_ideas(tmp_path):
    with LlmServer(default=failing_beam_answer) as server:
        run = Run(tmp_path, server, strategy="beam", stagnation=0)
        run.search(7)
    by_number = {a["attempt"]: a for a in run.attempts}
    assert [by_number[n]["verdict"] for n in (2, 3)] == ["win", None]
    assert (by_number[4]["repairs"], by_number[4]["parent"], by_number[4]["round"]) == (3, 1, 4)
    assert all(by_number[n]["repairs"] is None and by_number[n]["round"] == 4 for n in (5, 6, 7))
    assert [data["detail"] for data in run.of("node") if data["node"] == "propose"][
        1
    ] == "4 ideas, 1 to repair"
    assert "repair" not in run.nodes
    (repair,) = [data for data in run.of("request") if data["purpose"] == "repair"]
    assert "Attempt 3 failed: compile_error" in repair["messages"][-1]["content"]


def test_beam_s_requests_overlap(tmp_path, server):
    ideas = {"ideas": [{"idea": "takes 300 us", "why": ""}, {"idea": "takes 200 us", "why": ""}]}
    server.say(answer(ideas), hang(), beam_answer)
    run = Run(tmp_path, server, strategy="beam")
    thread = threading.Thread(target=run.search, args=(3,))
    thread.start()
    server.wait_for(3)  # the second proposal was asked for while the first hangs
    server.release()
    thread.join(30)
    assert not thread.is_alive()
    assert len(server.asked) >= 3
