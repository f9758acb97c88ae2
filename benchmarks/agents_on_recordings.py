"""What agents find on the recorded `full` spaces with few evaluations, against the true optimum.

    python benchmarks/agents_on_recordings.py [--device recorded:h200] [--agents random,tpe,ppo]
        [--steps 60,200] [--seeds 20] [--cache cold]

Prints Markdown. After N evaluations an agent's choice is the configuration with the best screening time so
far, noise included. Its ratio is that configuration's median over the whole recording to the smallest such
median of the space: 1.000 is the optimum. Each cell: the median and the 90th percentile over seeds.

A seed fixes the agent's draws. Every configuration's screening is drawn four times from its recording, and
seeds take turns with the four, so that all agents see the same noise.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from warpdeck.agents.base import search
from warpdeck.agents.registry import make
from warpdeck.core.bench import Bench, Proposal
from warpdeck.core.devices.recorded import RecordedDevice
from warpdeck.core.model import CacheMode, Candidate, Evaluation, Protocol, Status
from warpdeck.core.recording import Recording
from warpdeck.kernels import load_workload
from warpdeck.kernels.recordings import open_device

DRAWS = 4


class Screening(Bench):
    """A bench whose evaluations are drawn beforehand: `draw` chooses among them."""

    def __init__(self, recording: Recording, device: RecordedDevice, cache: CacheMode) -> None:
        workload = load_workload(recording.workload)
        case = workload.size_case(int(recording.case))
        super().__init__(
            workload, device, space=recording.space, cases=[case], protocol=Protocol(cache=cache), seed=1
        )
        drawn = [list(super(Screening, self).evaluate_many(self.configs())) for _ in range(DRAWS)]
        self._drawn = [{self.space.key(e.candidate.config): e for e in one} for one in drawn]
        self.draw = 0

    def evaluate_many(self, proposals: Iterable[Proposal]) -> Iterator[Evaluation]:
        """One after the other, as the agent asks."""
        for config in proposals:
            assert not isinstance(config, Candidate)  # these agents propose configurations
            yield self._drawn[self.draw][self.space.key(config)]


def ratios(
    bench: Screening, truth: Mapping[str, float], agent: str, seed: int, budgets: Sequence[int]
) -> list[float]:
    """True time of the choice over the optimum's, after each budget of one run; no agent knows its budget."""
    bench.draw = seed % DRAWS
    steps: list[Mapping[str, Any]] = []
    search(bench, make(agent, bench, seed=seed), steps=max(budgets), sink=lambda _, data: steps.append(data))
    optimum = min(truth.values())
    found = []
    for budget in budgets:
        choice = max(steps[:budget], key=lambda step: step["speedup"] or 0.0)
        found.append(truth[bench.space.key(choice["config"])] / optimum)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="recorded:h200")
    parser.add_argument("--agents", default="random,tpe,ppo")
    parser.add_argument("--steps", default="60,200")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--cache", default="cold")
    options = parser.parse_args()
    agents, budgets = options.agents.split(","), [int(n) for n in options.steps.split(",")]
    cache = CacheMode(options.cache)

    device = open_device(options.device)
    assert isinstance(device, RecordedDevice)
    print(f"{device.info.label}, {cache}; {options.seeds} seeds; median (90th percentile) over them.\n")
    heads = [f"{agent}, {n}" for n in budgets for agent in agents]
    print(f"| space | configurations | {' | '.join(heads)} |")
    print(f"|---|--:|{'--:|' * len(heads)}", flush=True)
    every: dict[str, list[float]] = {head: [] for head in heads}
    seconds = dict.fromkeys(agents, 0.0)
    runs = 0
    for recording in device.recordings(space="full"):
        bench = Screening(recording, device, cache)
        truth = {
            key: entry.series[cache].median_ms
            for key, entry in recording.entries.items()
            if entry.status is Status.OK
        }
        found: dict[str, list[float]] = {head: [] for head in heads}
        for agent in agents:
            start = time.process_time()
            for seed in range(options.seeds):
                for n, ratio in zip(budgets, ratios(bench, truth, agent, seed, budgets), strict=True):
                    found[f"{agent}, {n}"].append(ratio)
            seconds[agent] += time.process_time() - start
        runs += options.seeds
        cells = [f"{np.median(r):.3f} ({np.quantile(r, 0.9):.3f})" for r in found.values()]
        print(
            f"| {recording.workload} {recording.case} | {len(bench.configs())} | {' | '.join(cells)} |",
            flush=True,
        )
        for head, values in found.items():
            every[head] += values
        bench.close()
    means = [f"{np.exp(np.mean(np.log(r))):.4f}" for r in every.values()]
    near = [f"{np.mean(np.array(r) <= 1.01):.0%}" for r in every.values()]
    print(f"| geometric mean | | {' | '.join(means)} |")
    print(f"| runs within 1% | | {' | '.join(near)} |")
    costs = ", ".join(f"{agent} {total / runs:.1f} s" for agent, total in seconds.items())
    print(f"\nProcessor time of a run of {max(budgets)} evaluations, screening apart: {costs}.")
    device.close()


if __name__ == "__main__":
    main()
