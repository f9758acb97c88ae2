"""What a ladder run on a GPU leaves can be checked and replayed there, and compiles with nvcc."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from cli_support import warpdeck

pytestmark = pytest.mark.gpu


@pytest.fixture
def artifacts(isolated_home: Path) -> Path:
    done = warpdeck(
        *("tune", "gemm", "--agent", "ladder", "--device", "cuda:0", "--steps", "8", "--size", "256"),
        *("--size", "512", "--headless", "--json", "--session", "climb"),
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["best"]["speedup"] > 1 and not document["device"]["emulated"]
    return isolated_home / "sessions/climb/artifacts"


def test_the_best_file_is_right_and_its_requests_are_timed(artifacts: Path, tmp_path: Path) -> None:
    checked = warpdeck("check", str(artifacts / "best.cu"), "--device", "cuda:0", "--json")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    history = json.loads((artifacts / "history.json").read_text())["attempts"]
    assert len(history) == 8 and all(set(a["times_ms"]) == {"256", "512"} for a in history if a["score_ms"])
    summary = json.loads((artifacts / "summary.json").read_text())
    for case in summary["cases"]:
        file = artifacts / f"requests/{summary['best']['candidate']}-{case['name']}.json"
        again = json.loads(warpdeck("check", "--request", str(file), "--json").stdout)
        assert again["status"] == "ok" and again["measurement"]["n"] == 100
        assert again["median_ms"] == pytest.approx(case["median_ms"], rel=0.5)
    assert (artifacts / "heatmap.png").stat().st_size > 500
    nvcc = shutil.which("nvcc")
    if nvcc:
        subprocess.run(
            [nvcc, "-std=c++17", "-arch=native", "-c", artifacts / "best.cu", "-o", tmp_path / "best.o"],
            check=True,
        )
