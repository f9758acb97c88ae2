"""Sessions beside each other, effects of knobs, every form of export, and what a run's plan fills in."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpdeck.cli.app import run
from warpdeck.core.errors import UsageError
from warpdeck.core.model import Value
from warpdeck.sessions import exporting, paths
from warpdeck.sessions.comparing import Comparison, compare
from warpdeck.sessions.effects import effects
from warpdeck.sessions.launch import launch_runs
from warpdeck.sessions.planning import plan
from warpdeck.sessions.spec import RunSpec
from warpdeck.sessions.store import SessionStore


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two real runs on the recording that ships, of which the second tries fewer."""
    home = tmp_path_factory.mktemp("pair")
    specs = [
        RunSpec("softmax", agent="random", device="recorded:h200", sizes=(1024,), steps=steps, seed=seed)
        for steps, seed in ((80, 1), (3, 2))
    ]
    launched = launch_runs(specs, sessions=home)
    assert launched[-1].wait(120) == 0
    return launched[0].folder, launched[1].folder


def row(comparison: Comparison, name: str) -> tuple[tuple[str, ...], int | None]:
    found = next(row for row in comparison.rows if row.name == name)
    return found.cells, found.best


def test_two_sessions_beside_each_other(pair: tuple[Path, Path]) -> None:
    comparison = compare(pair)
    assert comparison.sessions == tuple(folder.name for folder in pair)
    assert len(comparison.notes) == 1 and "nothing is paired" in comparison.notes[0]
    assert row(comparison, "steps")[0] == ("80 of 80", "3 of 3")
    with SessionStore.open(pair[0]) as one, SessionStore.open(pair[1]) as other:
        results = [store.state().result or {} for store in (one, other)]
    speedups = [result["best"]["speedup_ci"] for result in results]
    cells, best = row(comparison, "95% interval")[0], row(comparison, "speedup")[1]
    assert cells == tuple(f"{low:.3f} to {high:.3f}" for low, high in speedups)
    assert best == (0 if speedups[0][0] > speedups[1][1] else None)
    names = {row.name for row in comparison.rows if row.group == "configuration"}
    assert {"variant", *results[0]["best"]["config"]} <= names
    assert all(row.differs == (len(set(row.cells)) > 1) for row in comparison.rows)


def test_what_cannot_be_compared_is_said(pair: tuple[Path, Path], tmp_path: Path) -> None:
    other = RunSpec("softmax", agent="random", device="recorded:h200", sizes=(4096,), steps=2, cache="hot")
    folder = launch_runs([other], sessions=tmp_path)[0]
    assert folder.wait(120) == 0
    comparison = compare([pair[0], folder.folder])
    said = " ".join(comparison.notes)
    assert "the sizes and cache modes differ: times can't be compared" in said
    assert all(row.best is None for row in comparison.rows)


def test_a_comparison_needs_two_whole_sessions(pair: tuple[Path, Path], tmp_path: Path) -> None:
    for folders in ([pair[0]], [pair[0], pair[0]], []):
        with pytest.raises(UsageError, match="two or more different sessions"):
            compare(folders)
    broken = tmp_path / "broken"
    broken.mkdir()
    with pytest.raises(UsageError, match="broken"):
        compare([pair[0], broken])


def test_the_commands(
    pair: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], isolated_home: Path
) -> None:
    assert run(["sessions", "compare", *map(str, pair)]) == 0
    text = capsys.readouterr()
    assert "≠" in text.out and "95% interval" in text.out and "nothing is paired" in text.err
    assert run(["sessions", "compare", *map(str, pair), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sessions"] == [folder.name for folder in pair]
    assert run(["sessions", "export", str(pair[1]), "--json", str(tmp_path / "s.json")]) == 0
    document = json.loads((tmp_path / "s.json").read_text())
    assert len(document["evaluations"]) == 3 and document["result"]["best"]
    capsys.readouterr()
    assert run(["sessions", "export", str(pair[1]), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == pair[1].name


@pytest.mark.parametrize("form", exporting.FORMS)
def test_every_form_goes_into_a_folder_or_a_file(pair: tuple[Path, Path], tmp_path: Path, form: str) -> None:
    suffix = exporting.FORMS[form].suffix
    assert exporting.export(pair[0], form, tmp_path) == tmp_path / f"{pair[0].name}{suffix}"
    assert exporting.export(pair[0], form, tmp_path / f"x{suffix}").stat().st_size > 100
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [f"{pair[0].name}{suffix}", f"x{suffix}"]
    )


def test_a_form_that_is_none(pair: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown form 'pdf': use tar, html, json, csv"):
        exporting.export(pair[0], "pdf", tmp_path)
    with pytest.raises(UsageError, match="packed as"):
        exporting.export(pair[0], "tar", tmp_path / "x.rar")


def test_a_plan_fills_in_what_was_left_out(isolated_home: Path) -> None:
    assert plan("softmax").steps == 100 and plan("softmax").space == "full"
    assert plan("softmax", "ladder", device="cpu").space == "ladder"
    assert plan("gemm", "llm", device="cpu", steps=3).steps == 3
    with pytest.raises(UsageError, match="use cold or hot"):
        plan("softmax", cache="tepid")
    with pytest.raises(UsageError, match="which workload"):
        plan(None)


def test_an_effect_is_what_a_knob_changes() -> None:
    rng = np.random.default_rng(0)
    results: list[tuple[dict[str, Value], float | None]] = [
        ({"big": big, "none": none, "fixed": 1}, (1.0 + big) * rng.uniform(0.99, 1.01))
        for big in (0, 1)
        for none in ("a", "b")
        for _ in range(50)
    ]
    results.append(({"big": 2, "none": "a", "fixed": 1}, None))
    found = effects(results)
    assert [effect.knob for effect in found] == ["big", "none"]
    assert found[0].share is not None and found[0].share > 0.99
    assert found[1].share is not None and found[1].share < 0.05
    levels = found[0].levels
    assert [(level.value, level.tried, level.ok) for level in levels] == [
        (0, 100, 100),
        (1, 100, 100),
        (2, 1, 0),
    ]
    assert levels[1].median_ms == pytest.approx(2.0, rel=0.01) and levels[2].median_ms is None


@given(
    st.lists(
        st.tuples(
            st.dictionaries(
                st.sampled_from("ab"), st.one_of(st.integers(0, 3), st.text(max_size=2), st.none())
            ),
            st.one_of(st.none(), st.floats(1e-6, 1e6)),
        ),
        max_size=60,
    )
)
def test_effects_are_bounded_and_ordered(results: list) -> None:
    for effect in effects(results):
        assert len(effect.levels) > 1
        assert effect.share is None or 0 <= effect.share <= 1
        for level in effect.levels:
            if level.median_ms is not None:
                times = [level.best_ms, level.low_ms, level.median_ms, level.high_ms]
                known = [ms for ms in times if ms is not None]
                assert known == sorted(known) and len(known) == len(times)
            assert level.ok <= level.tried


def test_a_session_that_moved_is_compared(pair: tuple[Path, Path], isolated_home: Path) -> None:
    target = paths.home().sessions / "moved"
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(pair[1], target)
    assert row(compare([pair[0], target]), "seed")[0] == ("1", "2")
