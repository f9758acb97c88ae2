"""Strategies and the search driver, on benches over synthetic recordings."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from warpdeck.agents import registry
from warpdeck.agents.base import FAILURE_REWARD, Stop, Strategy, search
from warpdeck.agents.registry import AGENTS, make
from warpdeck.core import recording
from warpdeck.core.bench import Bench, performance_cases
from warpdeck.core.devices import open_device
from warpdeck.core.errors import UsageError
from warpdeck.core.model import Config, Status
from warpdeck.core.space import SearchSpace
from warpdeck.core.workload import LaunchSpec, Workload
from warpdeck.kernels.loader import load_workload

Events = list[tuple[str, Mapping[str, Any]]]
ALL = tuple(name for name, spec in AGENTS.items() if not spec.needs_context)  # of configurations


def workload(knobs: Mapping[str, tuple[int, ...]], *restrictions: str) -> Workload:
    """Softmax with another `classic` space; a recording never looks at the kernel."""
    base = load_workload("softmax")
    space = SearchSpace("classic", "classic", knobs, restrictions)
    variant = replace(base.variant("classic"), launches=(LaunchSpec("softmax", ("1",), ("32",)),))
    return replace(base, variants={"classic": variant}, spaces={"classic": space})


def bench(
    folder: Path, tuned: Workload | None = None, *, fail: str = "", sizes: tuple[int, ...] = (256,)
) -> Bench:
    """A bench over a fresh recording; configurations whose key starts with `fail` didn't run."""
    tuned = tuned or load_workload("softmax")
    files = synthetic.write(folder, tuned, "classic", list(sizes))
    for file in files if fail else ():
        rec = recording.load(file)
        entries = {
            k: replace(e, status=Status.LAUNCH_ERROR, message="too many resources", series={})
            if k.startswith(fail)
            else e
            for k, e in rec.entries.items()
        }
        recording.save(replace(rec, entries=entries), file)
    return Bench(
        tuned,
        open_device("recorded:test", files),
        space="classic",
        cases=performance_cases(tuned, sizes),
        seed=1,
    )


def keys(run: Bench, strategy: Strategy, steps: int) -> list[str]:
    events: Events = []
    search(run, strategy, steps=steps, sink=lambda kind, data: events.append((kind, data)))
    return [run.space.key(data["config"]) for kind, data in events if kind == "step"]


@pytest.mark.parametrize("agent", ALL)
def test_every_agent_visits_the_whole_space_once_and_then_ends(agent: str, tmp_path: Path) -> None:
    run = bench(tmp_path)
    strategy = make(agent, run, seed=3)
    report = search(run, strategy, steps=100)
    assert (report.steps, report.reason) == (9, "exhausted")
    assert run.counts == {"ok": 9}
    assert strategy.ask() is None


@pytest.mark.parametrize("agent", ALL)
def test_same_seed_same_run(agent: str, tmp_path: Path) -> None:
    wide = workload({"a": (1, 2, 4, 8, 16), "b": (0, 1, 2, 3), "c": (1, 2, 3)}, "a + b < 12")
    first = keys(bench(tmp_path, wide), make(agent, bench(tmp_path, wide), seed=5), 25)
    again = keys(bench(tmp_path, wide), make(agent, bench(tmp_path, wide), seed=5), 25)
    other = keys(bench(tmp_path, wide), make(agent, bench(tmp_path, wide), seed=6), 25)
    assert first == again and len(set(first)) == 25
    assert agent == "sweep" or first != other


@pytest.mark.parametrize("agent", ALL)
def test_only_valid_configurations_in_a_tightly_restricted_space(agent: str, tmp_path: Path) -> None:
    values = (1, 2, 4, 8, 16, 32)
    tight = workload({"a": values, "b": values, "c": values}, "a * b * c in (1, 64)")
    run = bench(tmp_path, tight)
    valid = {run.space.key(c) for c in run.configs()}
    assert 0 < len(valid) < 30  # of 216 products
    visited = keys(run, make(agent, run, seed=0), 500)
    assert sorted(visited) == sorted(valid)
    assert run.counts == {"ok": len(valid)}


@pytest.mark.parametrize("agent", ALL)
def test_failures_count_as_steps_and_get_the_penalty(agent: str, tmp_path: Path) -> None:
    events: Events = []
    run = bench(tmp_path, fail="64,")
    search(run, make(agent, run, seed=0), steps=50, sink=lambda kind, data: events.append((kind, data)))
    failed = [data for _, data in events if data["status"] == "launch_error"]
    assert len(events) == 9 and len(failed) == 3
    assert all(d["speedup"] is None and d["reward"] == FAILURE_REWARD for d in failed)
    assert run.finish().best is not None


def test_steps_are_a_budget_and_events_tell_the_best_so_far(tmp_path: Path) -> None:
    events: Events = []
    run = bench(tmp_path)
    report = search(
        run, make("random", run, seed=2), steps=4, sink=lambda kind, data: events.append((kind, data))
    )
    assert (report.steps, report.reason) == (4, "steps")
    assert [d["step"] for _, d in events] == [1, 2, 3, 4]
    best = -np.inf
    for _, data in events:
        best = max(best, data["speedup"])
        assert data["best_speedup"] == best and data["reward"] == pytest.approx(data["speedup"] - 1)


@pytest.mark.parametrize("agent", ["random", "sweep"])
def test_a_resumed_run_continues_as_if_uninterrupted(agent: str, tmp_path: Path) -> None:
    whole = keys(bench(tmp_path), make(agent, bench(tmp_path), seed=4), 9)
    run = bench(tmp_path)
    strategy = make(agent, run, seed=4)
    done = [(config, run.evaluate(config)) for config in (strategy.ask() for _ in range(4)) if config]
    fresh: Events = []
    report = search(
        run,
        make(agent, run, seed=4),
        steps=9,
        told=done,
        sink=lambda kind, data: fresh.append((kind, data)),
    )
    assert report.steps == 9
    assert [run.space.key(d["config"]) for _, d in fresh] == whole[4:]
    assert fresh[0][1]["step"] == 5


@pytest.mark.parametrize("agent", ALL)
def test_told_configurations_are_never_evaluated_again(agent: str, tmp_path: Path) -> None:
    run = bench(tmp_path)
    told = [(config, run.evaluate(config)) for config in run.configs()[2:7]]
    fresh: Events = []
    search(
        run,
        make(agent, run, seed=0),
        steps=50,
        told=told,
        sink=lambda kind, data: fresh.append((kind, data)),
    )
    left = {run.space.key(c) for c in run.configs()} - {run.space.key(c) for c, _ in told}
    assert {run.space.key(d["config"]) for _, d in fresh} == left and len(fresh) == len(left)


def test_stop_ends_the_search_between_steps(tmp_path: Path) -> None:
    class StopAfter:
        def __init__(self, checks: int) -> None:
            self.left = checks

        def check(self) -> None:
            self.left -= 1
            if self.left < 0:
                raise Stop

    run = bench(tmp_path)
    report = search(run, make("sweep", run), steps=9, control=StopAfter(4))
    assert (report.steps, report.reason) == (4, "stopped")
    assert run.counts == {"ok": 4}


def test_time_limit_leaves_pauses_out(tmp_path: Path) -> None:
    now = 0.0

    class PauseOnce:
        def check(self) -> None:
            nonlocal now
            now += 100.0  # a long pause

    def clock() -> float:
        nonlocal now
        now += 1.0
        return now

    run = bench(tmp_path)
    report = search(run, make("tpe", run), steps=9, control=PauseOnce(), time_limit_s=25.0, clock=clock)
    assert report.reason == "time"
    assert 0 < report.steps < 9


@pytest.mark.parametrize("learner", ["tpe", "ppo"])
def test_learners_learn(learner: str, tmp_path: Path) -> None:
    """On a smooth space, 40 evaluations come closer to the optimum than random's on average over seeds."""
    steps = tuple(range(8))
    wide = workload({k: tuple(2**i for i in steps) for k in "abcd"}, "a * b <= 4096")
    run = bench(tmp_path, wide)
    truth = {run.space.key(c): synthetic.true_ms(c, 256) for c in run.configs()}
    optimum = min(truth.values())

    def regret(agent: str) -> float:
        found = [
            min(truth[k] for k in keys(run, make(agent, run, seed=s), 40)) / optimum - 1 for s in range(4)
        ]
        return float(np.mean(found))

    assert regret(learner) < regret("random") / 1.5


@given(
    a=st.integers(2, 5),
    b=st.integers(2, 5),
    limit=st.integers(1, 6),
    seed=st.integers(0, 2**16),
    lookahead=st.integers(1, 3),
)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_tpe_is_robust_in_spaces_of_any_shape(
    a: int, b: int, limit: int, seed: int, lookahead: int, tmp_path_factory: Any
) -> None:
    odd = workload({"a": tuple(range(a)), "b": tuple(range(b)), "one": (7,)}, f"a + b <= {limit}")
    run = bench(tmp_path_factory.mktemp("odd"), odd)
    strategy = make("tpe", run, seed=seed, options={"startup": 2, "max_rejects": 3, "lookahead": lookahead})
    visited = keys(run, strategy, 100)
    assert sorted(visited) == sorted(run.space.key(c) for c in run.configs())


def test_unknown_names_and_values_are_one_plain_line(tmp_path: Path) -> None:
    run = bench(tmp_path)
    for name, options, text in (
        ("tpee", {}, "unknown agent 'tpee'; did you mean 'tpe'"),
        ("tpe", {"startups": 3}, "no option 'startups'; did you mean 'startup'"),
        ("random", {"x": 1}, "agent 'random' has no option 'x'; it takes none"),
        ("tpe", {"startup": "many"}, "startup must be a whole number, not 'many'"),
        ("tpe", {"startup": -1}, "startup must be at least 1"),
    ):
        with pytest.raises(UsageError, match=text) as caught:
            make(name, run, options=options)
        assert "\n" not in str(caught.value)


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "torch" else real(name, *a)
    )
    yield


def test_ppo_leaves_no_folder_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("stable_baselines3")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    assert make("ppo", bench(tmp_path)).ask() is not None
    assert list(scratch.glob("*")) == []


def test_ppo_without_its_extra_says_what_to_install(tmp_path: Path, without: None) -> None:
    with pytest.raises(UsageError, match=r'pip install "warpdeck\[rl\]"'):
        make("ppo", bench(tmp_path))


def test_agents_import_nothing_heavy_and_register_the_environment_late() -> None:
    code = (
        "import sys, warpdeck.agents.base, warpdeck.agents.registry\n"
        "heavy = {'torch', 'gymnasium', 'optuna', 'stable_baselines3', 'numba'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "import gymnasium\n"
        "assert 'warpdeck/KernelTuning-v0' in gymnasium.registry\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_environment_registers_whichever_is_imported_first() -> None:
    code = (
        "import gymnasium, warpdeck.agents\n"
        "assert gymnasium.spec('warpdeck/KernelTuning-v0').entry_point.startswith('warpdeck.agents.env')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_random_is_uniform_over_valid_configurations(tmp_path: Path) -> None:
    run = bench(tmp_path)
    first: list[Config] = []
    for seed in range(180):
        config = make("random", run, seed=seed).ask()
        assert isinstance(config, dict)
        first.append(config)
    counts = np.unique([run.space.key(c) for c in first], return_counts=True)[1]
    assert len(counts) == 9 and counts.min() >= 8  # 20 expected each; p < 0.001 for fewer


def test_preloading_an_agent_imports_what_it_takes_long_for_and_never_fails(monkeypatch):
    code = (
        "import sys; from warpdeck.agents import registry; registry.preload(sys.argv[1]);"
        "print([name for name in sys.argv[2:] if name in sys.modules])"
    )
    for agent, names in (("tpe", ["optuna"]), ("llm", ["warpdeck.agents.llm.loop"]), ("sweep", [])):
        command = [sys.executable, "-c", code, agent, "optuna", "warpdeck.agents.llm.loop", "torch"]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == str(
            names
        )
    for spec in registry.AGENTS.values():
        monkeypatch.setattr(registry, "AGENTS", {"x": replace(spec, imports=("no_such_module",))})
        registry.preload("x")
