"""`tune --from`: what is tried first, and why nothing is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from warpdeck.core.errors import UsageError
from warpdeck.core.space import SearchSpace
from warpdeck.sessions.warmstart import first_configs

SPACE = SearchSpace("small", "numba", {"block": (64, 128), "rows": (1, 2)}, ("block * rows <= n",))


def first(tmp_path: Path, document: dict[str, Any], n: int = 256) -> Any:
    path = tmp_path / "result.json"
    path.write_text(json.dumps(document))
    return first_configs(str(path), SPACE, [{"n": n}], "axpy")


def history(*configs: dict[str, int]) -> dict[str, Any]:
    return {"evaluations": [{"config": c, "score_ms": 1.0 + i} for i, c in enumerate(configs)]}


def test_what_fits_comes_first_and_once(tmp_path: Path) -> None:
    best, other = {"block": 128, "rows": 2}, {"rows": 1, "block": 64}
    assert first(tmp_path, history(best, {"tile": 3}, other, best)) == (best, other)
    assert first(tmp_path, history(best, other), n=128) == ({"block": 64, "rows": 1},)
    summary = {"workload": "axpy in another folder", "best": {"config": best}, "tied": [other]}
    assert first(tmp_path, summary) == (best, other)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"workload": "gemm", "best": {"config": {"tile": 3}}}, "is of workload 'gemm', not 'axpy'"),
        (history({"tile": 3}), "its knobs are tile, those of the space 'small' block, rows"),
        (
            history({"block": 128, "rows": 2}),
            "the first: restriction 'block * rows <= n' fails for block=128, n=100",
        ),
        (history(), "nothing was measured there"),
        ({"best": None}, "not a result of"),
    ],
)
def test_where_nothing_fits_it_says_why(tmp_path: Path, document: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words.replace("*", r"\*")):
        first(tmp_path, document, n=100)
