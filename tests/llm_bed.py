"""What the tests of the client share: a server, a recorder and clients of them; an ask, a schema, a tool."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from llm_context import Elapsing, Recorder
from llm_server import LlmServer

from warpdeck.agents.llm.client import Client, Tool
from warpdeck.agents.llm.errors import LlmError
from warpdeck.agents.llm.settings import LlmSettings

ASK = [{"role": "system", "content": "You write kernels."}, {"role": "user", "content": "Make it fast."}]
SCHEMA = {
    "type": "object",
    "properties": {"idea": {"type": "string"}, "grid": {"type": "array", "items": {"type": "integer"}}},
    "required": ["idea"],
    "additionalProperties": False,
}
GOOD = {"idea": "tile it", "grid": [1, 2]}
KEY = "sk-test-0123456789abcdefghij"


class Bed:
    """A server, a recorder and clients of them."""

    def __init__(self, folder: Path) -> None:
        self.log = Recorder(folder)
        self.time = Elapsing()
        self.servers: list[LlmServer] = []
        self.clients: list[Client] = []

    def server(self, *steps: Any, **keys: Any) -> LlmServer:
        self.servers.append(LlmServer(*steps, **keys))
        return self.servers[-1]

    def client(
        self, server: LlmServer, *, key: str = "", control: Any = None, past: Any = (), **settings: Any
    ) -> Client:
        options = {"base_url": server.url, "request_timeout_s": 30.0, **settings}
        client = Client(
            LlmSettings.from_options(options),
            self.log.context(control=control, past=past),
            environ={"OPENAI_API_KEY": key},
            clock=self.time,
            sleep=self.time.sleep,
            rng=random.Random(1),
        )
        self.clients.append(client)
        return client

    def __enter__(self) -> Bed:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self.clients:
            client.close()
        for server in self.servers:
            server.close()


def failure(act: Callable[[], object]) -> LlmError:
    with pytest.raises(LlmError) as caught:
        act()
    assert "\n" not in str(caught.value)
    return caught.value


def echo_tool(seen: list[Any]) -> Tool:
    def run(arguments: Mapping[str, Any]) -> str:
        seen.append(dict(arguments))
        return f"result of {arguments['n']}"

    shape = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    return Tool("measure", "Measures n.", shape, run)
