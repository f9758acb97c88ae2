"""A run that was cut off pays for no answer twice."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from llm_bed import ASK, GOOD, SCHEMA, Bed, echo_tool
from llm_context import stop_when
from llm_steps import answer, call, hang

from warpdeck.agents.base import Stop


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    with Bed(tmp_path) as made:
        yield made


def test_a_resumed_run_pays_for_nothing_twice(bed: Bed) -> None:
    seen: list[Any] = []
    script = [answer({"idea": 1}), call("measure", {"n": 1}), answer(GOOD)]
    server = bed.server(*script, refuse=["reasoning_effort", "json_schema"])
    first = bed.client(server).ask(ASK, purpose="propose", schema=SCHEMA, tools=[echo_tool(seen)])
    paid = len(server.asked)
    past = list(bed.log.events)
    bed.log.events.clear()

    resumed = bed.client(server, past=past)
    assert resumed.usage.input == 300
    again = resumed.ask(ASK, purpose="propose", schema=SCHEMA, tools=[echo_tool(seen)])
    assert (again.data, again.usage) == (first.data, first.usage)
    assert len(server.asked) == paid and seen == [{"n": 1}]
    assert [data["from_log"] for data in bed.log.of("response")] == [True] * 3
    assert resumed.usage.input == 300

    # It goes on where the other stopped: with a new id, and what the server refuses is known.
    server.say(answer(GOOD))
    resumed.ask(ASK, purpose="next", schema=SCHEMA)
    assert len(server.asked) == paid + 1
    assert bed.log.of("request")[-1]["id"] == "r4"

    # A second resume reads answers that were given back once only.
    twice = bed.client(server, past=[*past, *bed.log.events])
    assert twice.usage.input == 400
    twice.ask(ASK, purpose="propose", schema=SCHEMA, tools=[echo_tool(seen)])
    twice.ask(ASK, purpose="next", schema=SCHEMA)
    assert len(server.asked) == paid + 1


@pytest.mark.parametrize("logged", range(1, 6))
def test_a_run_cut_at_any_event_repeats_only_what_has_no_answer(bed: Bed, logged: int) -> None:
    """What kill -9 leaves: a prefix of the events."""
    server = bed.server(call("measure", {"n": 1}), answer(GOOD))
    seen: list[Any] = []
    bed.client(server).ask(ASK, purpose="propose", schema=SCHEMA, tools=[echo_tool(seen)])
    kinds = [kind for kind, _ in bed.log.events]
    assert kinds == ["request", "response", "tool", "request", "response"]
    past = bed.log.events[:logged]
    answered = kinds[:logged].count("response")
    server.say(*[call("measure", {"n": 1}), answer(GOOD)][answered:])
    before = len(server.asked)
    resumed = bed.client(server, past=past)
    assert resumed.ask(ASK, purpose="propose", schema=SCHEMA, tools=[echo_tool(seen)]).data == GOOD
    assert len(server.asked) - before == 2 - answered


def test_equal_requests_are_given_back_in_order(bed: Bed) -> None:
    server = bed.server(answer("One."), answer("Two."))
    client = bed.client(server)
    texts = [client.ask(ASK, purpose="idea").text for _ in range(2)]
    resumed = bed.client(server, past=list(bed.log.events))
    assert [resumed.ask(ASK, purpose="idea").text for _ in range(2)] == texts
    assert len(server.asked) == 2


def test_a_request_that_was_stopped_is_asked_again(bed: Bed) -> None:
    server = bed.server(hang(), answer("Fine."))
    with pytest.raises(Stop):
        bed.client(server, control=stop_when(lambda: bool(server.asked))).ask(ASK, purpose="propose")
    resumed = bed.client(server, past=list(bed.log.events))
    assert resumed.usage.total == 0
    assert resumed.ask(ASK, purpose="propose").text == "Fine." and len(server.asked) == 2


RUN = """
import json, os, sys
from pathlib import Path
from warpdeck.agents.base import Context
from warpdeck.agents.llm.client import Client
from warpdeck.agents.llm.settings import LlmSettings

url, log = sys.argv[1:]
file = open(log, "a")
lines = []

def flush():
    file.writelines(lines)
    lines.clear()
    file.flush()
    os.fsync(file.fileno())

context = Context(Path("."), lambda kind, data: lines.append(json.dumps([kind, data]) + "\\n"), flush)
client = Client(LlmSettings(base_url=url), context)
for purpose in ("one", "two"):
    client.ask([{"role": "user", "content": purpose}], purpose=purpose)
"""


def test_a_process_killed_in_mid_request_has_its_answers_on_disk(bed: Bed, tmp_path: Path) -> None:
    server = bed.server(answer("One."), hang())
    log = tmp_path / "log.jsonl"
    process = subprocess.Popen([sys.executable, "-c", RUN, server.url, str(log)])
    try:
        server.wait_for(2, timeout_s=60)
    finally:
        process.kill()
        process.wait()
    past = [tuple(json.loads(line)) for line in log.read_text().splitlines()]
    server.release()
    server.say(answer("Two."))
    client = bed.client(server, past=past)
    texts = [client.ask([{"role": "user", "content": p}], purpose=p).text for p in ("one", "two")]
    assert texts == ["One.", "Two."] and len(server.asked) == 3
