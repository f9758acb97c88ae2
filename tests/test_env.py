"""The Gymnasium environment, on synthetic recordings."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import synthetic
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st

import warpdeck.agents  # noqa: F401  (registers the environment)
from warpdeck.agents.env import EpisodeConfig, KernelOptimizationEnv
from warpdeck.agents.observation import COUNTERS, ObservationLayout, nvml_features, size_feature
from warpdeck.core import recording
from warpdeck.core.errors import UsageError
from warpdeck.core.model import Status
from warpdeck.kernels.loader import load_workload

KERNELS = ("gemm", "reduction", "softmax")
NVML = {"gpu_util": 50, "mem_util": None, "mem_used": 25, "mem_total": 100, "temp_c": 37}


@pytest.fixture(autouse=True)
def recorded(isolated_home: Path) -> list[Path]:
    """Recordings of the three kernels' classic spaces at 256 and 1024, under the name `test`."""
    folder = isolated_home / "recordings"
    folder.mkdir()
    files: list[Path] = []
    for kernel in KERNELS:
        files += synthetic.write(folder, load_workload(kernel), "classic", [256, 1024])
    return files


def edit(file: Path, **changes: Any) -> None:
    recording.save(replace(recording.load(file), **changes), file)


def make(**fields: Any) -> KernelOptimizationEnv:
    return KernelOptimizationEnv(EpisodeConfig(**{"matrix_size": 256, "device": "recorded:test", **fields}))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"kernel_name": "random", "matrix_size": None},
        {"kernel_name": ["gemm", "softmax"], "use_nvml": False, "observe_size": True},
        {"reward": "log_improvement", "use_cupti": True},
    ],
)
def test_passes_gymnasiums_checker_also_for_determinism(fields: dict[str, Any]) -> None:
    config = EpisodeConfig(**{"matrix_size": 256, "device": "recorded:test", **fields})
    spec = gymnasium.spec("warpdeck/KernelTuning-v0")
    strict = replace(spec, nondeterministic=False)  # a recording repeats, so the strict checks apply
    check_env(gymnasium.make(strict, config=config).unwrapped, skip_render_check=True)


def test_made_by_its_id_with_plain_keywords() -> None:
    env = gymnasium.make(
        "warpdeck/KernelTuning-v0", kernel_name="softmax", matrix_size=1024, device="recorded:test"
    )
    observation, info = env.reset(seed=0)
    assert observation.shape == (13,) and info["kernel"] == "softmax" and info["matrix_size"] == 1024
    env.close()


def test_observation_has_the_documents_slots_in_its_order() -> None:
    env = make(kernel_name="reduction")
    observation, info = env.reset(seed=0)
    assert info["observation_slots"] == (
        *("kernel_gemm", "kernel_reduction", "kernel_softmax"),
        *("previous_action_0", "previous_action_1"),
        *("cupti_achieved_occupancy", "cupti_l2_hit_rate", "cupti_dram_bw_pct", "cupti_sm_active_pct"),
        *("nvml_gpu_util", "nvml_mem_util", "nvml_mem_used", "nvml_temp"),
    )
    assert observation.tolist() == [0, 1, 0, 1, 0] + [0] * 8  # the baseline is block 256, no cap
    after, *_ = env.step(np.array([1, 2]))
    assert after.tolist() == [0, 1, 0, 0.5, 1] + [0] * 8
    assert env.action_space == gymnasium.spaces.MultiDiscrete([3, 3])


@pytest.mark.parametrize(
    ("fields", "dim"),
    [
        ({}, 13),
        ({"use_nvml": False}, 9),
        ({"observe_size": True}, 14),
        ({"use_nvml": False, "observe_size": True}, 10),
    ],
)
def test_dimension(fields: dict[str, Any], dim: int) -> None:
    observation, _ = make(**fields).reset(seed=0)
    assert observation.shape == (dim,) and observation.dtype == np.float32


def test_size_is_the_last_slot() -> None:
    env = make(matrix_size=[256, 1024], observe_size=True)
    small, _ = env.reset(seed=0, options={"size": 256})
    large, _ = env.reset(options={"size": 1024})
    assert small[-1] == size_feature(256) == 0.25 and large[-1] == size_feature(1024) == 0.5


def test_other_workloads_and_more_knobs_have_their_own_shape(recorded: list[Path]) -> None:
    layout = ObservationLayout((3, 4, 2), use_nvml=False)
    vector = layout.build("axpy", None, (2, 0, 1))
    assert vector.tolist() == [0, 0, 0, 1, 0, 1, 0, 0, 0, 0]


def test_rewards_follow_the_times(recorded: list[Path]) -> None:
    env = make(kernel_name="softmax")
    _, start = env.reset(seed=3)
    _, reward, terminated, truncated, info = env.step(np.array([0, 0]))
    assert not terminated and not truncated
    assert start["baseline_ms"] == info["baseline_ms"]
    assert info["speedup"] == pytest.approx(info["baseline_ms"] / info["time_ms"], rel=1e-12)
    assert reward == pytest.approx(info["speedup"] - 1, rel=1e-12)
    truth = synthetic.true_ms({"block_size": 256}, 256) / synthetic.true_ms({"block_size": 64}, 256)
    assert info["speedup"] == pytest.approx(truth, rel=0.06)
    assert (info["block_size"], info["reg_cap"], info["config"]) == (
        64,
        0,
        {"block_size": 64, "reg_cap": 0},
    )
    assert "1 warm-up + 5 samples" in info["protocol"]
    assert info["device"] == "recorded on Synthetic GPU, 2026-01-01"


def test_log_improvement_pays_each_improvement_once() -> None:
    env = make(kernel_name="softmax", reward="log_improvement")
    _, start = env.reset(seed=1)
    total, best, info = 0.0, start["baseline_ms"], start
    for i in range(20):
        _, reward, *_, info = env.step(np.array([i % 3, i % 2]))
        assert reward == pytest.approx(max(0.0, math.log(best / info["time_ms"])), abs=1e-12)
        best = min(best, info["time_ms"])
        total += reward
    assert total == pytest.approx(math.log(start["baseline_ms"] / best), rel=1e-9)
    assert info["best_speedup"] == pytest.approx(start["baseline_ms"] / best)


def test_a_failed_configuration_gets_the_penalty_and_no_time(recorded: list[Path]) -> None:
    file = next(f for f in recorded if "gemm-classic-256" in f.name)
    rec = recording.load(file)
    failed = {
        k: replace(e, status=Status.LAUNCH_ERROR, message="too many", series={}) if k == "64,32" else e
        for k, e in rec.entries.items()
    }
    edit(file, entries=failed)
    env = make(failure_penalty=-2.5)
    env.reset(seed=0)
    _, _, _, _, good = env.step(np.array([1, 0]))
    _, reward, _, _, info = env.step(np.array([0, 1]))
    assert reward == -2.5 and info["status"] == "launch_error"
    assert info["time_ms"] is None and info["speedup"] is None
    assert info["best_speedup"] == max(good["speedup"], 1.0)


def test_a_failing_baseline_is_said_at_reset(recorded: list[Path]) -> None:
    file = next(f for f in recorded if "gemm-classic-256" in f.name)
    rec = recording.load(file)
    broken = {
        k: replace(e, status=Status.TIMEOUT, series={}) if k == "256,0" else e for k, e in rec.entries.items()
    }
    edit(file, entries=broken)
    with pytest.raises(Exception, match=r"baseline of gemm, size 256, failed .* timeout"):
        make().reset(seed=0)


def test_episode_ends_after_max_steps() -> None:
    env = make(max_steps=3)
    env.reset(seed=0)
    assert [env.step(np.array([0, 0]))[3] for _ in range(3)] == [False, False, True]
    with pytest.raises(gymnasium.error.ResetNeeded):
        make().step(np.array([0, 0]))


def test_seed_fixes_tasks_times_and_sampled_actions() -> None:
    def run(seed: int) -> list[Any]:
        env = make(kernel_name="random", matrix_size=None)
        rows: list[Any] = []
        for episode in range(4):
            _, info = env.reset(seed=seed if episode == 0 else None)
            rows.append((info["kernel"], info["matrix_size"], info["baseline_ms"]))
            for _ in range(5):
                action = env.action_space.sample()
                observation, reward, *_ = env.step(action)
                rows.append((*action.tolist(), reward, *observation.tolist()))
        return rows

    assert run(7) == run(7) != run(8)


def test_environments_sharing_tasks_do_not_disturb_each_other() -> None:
    alone = make()
    alone.reset(seed=5)
    expected = [alone.step(np.array([i % 3, 0]))[1] for i in range(6)]
    first = make()
    second = KernelOptimizationEnv(first.config, tasks=first.tasks)
    first.reset(seed=5)
    second.reset(seed=6)
    rewards = []
    for i in range(6):
        rewards.append(first.step(np.array([i % 3, 0]))[1])
        second.step(np.array([2, 2]))
    assert rewards == expected


def test_nvml_slots_hold_what_the_recording_stored(recorded: list[Path]) -> None:
    edit(next(f for f in recorded if "gemm-classic-256" in f.name), nvml=NVML)
    observation, info = make().reset(seed=0)
    assert observation[-4:] == pytest.approx([0.5, 0.0, 0.25, 0.37])
    assert info["nvml_mem_used_norm"] == 0.25
    assert info["nvml_source"] == "recorded on Synthetic GPU, 2026-01-01"
    both = make(kernel_name=["gemm", "softmax"])
    assert both.reset(seed=0, options={"kernel": "gemm"})[1]["nvml_temp_norm"] == 0.37
    _, none = both.reset(options={"kernel": "softmax"})
    assert none["nvml_source"].startswith("none: ")
    edit(next(f for f in recorded if "gemm-classic-1024" in f.name), nvml={**NVML, "temp_c": 61})
    sizes = make(matrix_size=[256, 1024])  # a size has its own recording
    temperatures = [sizes.reset(options={"size": n})[1]["nvml_temp_norm"] for n in (256, 1024)]
    assert temperatures == [0.37, 0.61]
    assert make(use_nvml=False).reset(seed=0)[1]["nvml_source"] == "off"


def test_counters_asked_for_say_why_they_are_zero() -> None:
    env = make(use_cupti=True)
    observation, info = env.reset(seed=0)
    assert info["cupti_ok"] is False and "holds no hardware counters" in info["cupti_reason"]
    slots = [i for i, name in enumerate(info["observation_slots"]) if name.startswith("cupti_")]
    assert len(slots) == 4 and not observation[slots].any()


def test_recorded_counters_fill_their_slots(recorded: list[Path]) -> None:
    values = synthetic.add_counters(recorded[0], but=("64,32",))
    env = make(kernel_name="gemm", use_cupti=True)
    observation, info = env.reset(seed=0)
    slots = [i for i, name in enumerate(info["observation_slots"]) if name.startswith("cupti_")]
    assert observation[slots].tolist() == pytest.approx(list(values["256,0"].values()))  # the baseline's
    seen = set()
    for action in np.ndindex(3, 3):
        observation, _, _, _, info = env.step(np.array(action))
        key = f"{info['block_size']},{info['reg_cap']}"
        wanted = list(values[key].values()) if key in values else [0.0] * 4
        assert observation[slots].tolist() == pytest.approx(wanted)
        assert [info[f"cupti_{name}_norm"] for name in COUNTERS] == pytest.approx(wanted)
        assert info["cupti_ok"] is (key in values)
        assert info["cupti_reason"] == ("" if key in values else "Nsight Compute took longer than 120 s")
        seen.add(tuple(observation[slots]))
    assert len(seen) == 9
    plain = make(kernel_name="gemm")
    observation, info = plain.reset(seed=0)
    assert not observation[slots].any() and info["cupti_ok"] is False and info["cupti_reason"] == ""


def test_a_failed_configuration_has_no_counters(recorded: list[Path]) -> None:
    rec = recording.load(recorded[0])
    entries = {
        k: replace(e, status=Status.LAUNCH_ERROR, series={}) if k.startswith("64,") else e
        for k, e in rec.entries.items()
    }
    edit(recorded[0], entries=entries)
    synthetic.add_counters(recorded[0])
    env = make(kernel_name="gemm", use_cupti=True)
    env.reset(seed=0)
    _, _, _, _, info = env.step(np.array([0, 0]))
    assert info["cupti_ok"] is False and "launch_error" in info["cupti_reason"]


def test_options_choose_the_task_and_bad_ones_are_named() -> None:
    env = make(kernel_name="random", matrix_size=None)
    _, info = env.reset(seed=0, options={"kernel": "softmax", "size": 1024})
    assert (info["kernel"], info["matrix_size"]) == ("softmax", 1024)
    with pytest.raises(UsageError, match="no task 'softmax' of size 512; there are: gemm 256"):
        env.reset(options={"kernel": "softmax", "size": 512})


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"kernel_name": "gemmm"}, "gemm"),
        ({"matrix_size": 512}, "512 is not recorded"),
        ({"device": "recorded:nowhere"}, "nowhere"),
        ({"space": "fulll"}, "no space 'fulll'"),
        ({"max_steps": 0}, "max_steps"),
        ({"reward": "fame"}, "reward must be"),
        ({"cache": "tepid"}, "cache must be"),
    ],
)
def test_bad_requests(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        make(**fields)


def test_all_recorded_sizes_by_default() -> None:
    env = make(kernel_name=KERNELS, matrix_size=None)
    assert [(t.kernel, t.size) for t in env.tasks.tasks] == [(k, n) for k in KERNELS for n in (256, 1024)]


@given(
    st.dictionaries(
        st.sampled_from(["gpu_util", "mem_util", "mem_used", "mem_total", "temp_c"]),
        st.none() | st.floats(-1e12, 1e12),
    )
)
def test_nvml_features_stay_in_range(sample: dict[str, Any]) -> None:
    assert all(0.0 <= v <= 1.0 for v in nvml_features(sample))
