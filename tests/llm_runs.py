"""What the tests of the LLM agent's loop share: a run against a scripted server, proposals, answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from llm_bench import SourceDevice, make_bench
from llm_server import LlmServer
from llm_steps import answer

from warpdeck.agents.base import Context, search
from warpdeck.agents.llm import prompts
from warpdeck.agents.llm.loop import LlmAgent, prepare
from warpdeck.agents.llm.settings import LlmSettings
from warpdeck.core.devices import Device
from warpdeck.kernels.loader import load_workload

GEMM = load_workload("gemm")
SIGNATURE = prompts.signature(GEMM, "tile")


def launch(**changes: Any) -> dict[str, Any]:
    """A launch as a proposal has it."""
    return {"entry": "tile", "grid": ["1"], "block": ["1"], "shared": "0", **changes}


def propose(words: str, *, idea: str = "an idea", **more: Any) -> dict[str, Any]:
    """A proposal whose source says what the made-up device makes of it."""
    return {
        "idea": idea,
        "summary": f"because {idea}",
        "source": f"// {words}\n{SIGNATURE} {{ c[0] = a[0]; }}\n",
        "launches": [launch(grid=["ceil_div(n, 16)", "ceil_div(m, 16)"], block=["16", "16"])],
        "case_launches": [],
        **more,
    }


class Run:
    """A run of the agent against a server, with its events kept."""

    def __init__(
        self,
        folder: Path,
        server: LlmServer,
        *,
        emulated: bool = False,
        device: Device | None = None,
        past: Sequence[tuple[str, Mapping[str, Any]]] = (),
        **options: Any,
    ) -> None:
        (folder / "artifacts").mkdir(exist_ok=True)
        self.events: list[tuple[str, Mapping[str, Any]]] = []
        self.bench = make_bench(GEMM, self._sink, device or SourceDevice(emulated=emulated))
        self.context = Context(folder, self._sink, past=list(past))
        settings = LlmSettings.from_options(
            {"base_url": server.url, "request_timeout_s": 5, "retries": 2, **options}
        )
        prepare(self.bench, self.context)
        self.agent = LlmAgent(self.bench, self.context, settings)

    def _sink(self, kind: str, data: Mapping[str, Any]) -> None:
        self.events.append((kind, json.loads(json.dumps(data))))

    def search(self, steps: int, told=()):
        return search(self.bench, self.agent, steps=steps, told=told)

    def of(self, kind: str) -> list[Mapping[str, Any]]:
        return [data for k, data in self.events if k == kind]

    @property
    def attempts(self) -> list[Mapping[str, Any]]:
        """Each attempt as it was told last."""
        return list({data["attempt"]: data for data in self.of("attempt")}.values())

    @property
    def nodes(self) -> list[str]:
        return [data["node"] for data in self.of("node")]

    @property
    def messages(self) -> list[str]:
        return [data["text"] for data in self.of("message")]


def beam_answer(asked):
    """Two ideas for each parent; a kernel whose time is in its idea."""
    text = asked.messages[-1]["content"]
    if "different ideas" in text:
        base = (700 if "attempt 1:" in text else 600) - 7 * asked.number
        ideas = [{"idea": f"takes {base - i} us", "why": "less traffic"} for i in (0, 1)]
        return answer({"ideas": ideas})
    idea = text.partition("<<<IDEA")[2].partition("us")[0].rpartition("takes")[2].strip()
    return answer(propose(f"takes {idea} us", idea=f"takes {idea} us"))


def failing_beam_answer(asked):
    """As `beam_answer`, but the second idea of the first round doesn't compile before it is repaired."""
    text = asked.messages[-1]["content"]
    if "failed: compile_error" in text:
        return answer(propose("takes 650 us", idea="mended"))
    if "takes 692 us" in text.partition("<<<IDEA")[2]:
        return answer(propose("fails to compile", idea="takes 692 us"))
    return beam_answer(asked)
