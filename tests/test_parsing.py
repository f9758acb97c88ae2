"""The one way to Python's parser."""

from __future__ import annotations

import ast
import threading

import pytest

from warpdeck.core.errors import UsageError
from warpdeck.core.expr import compile_expr
from warpdeck.core.tensors import uses_torch
from warpdeck.telemetry.parsing import parse_expression, parse_module

DEEP = "-" * 100_000 + "1"


@pytest.mark.parametrize("text", [DEEP, "(" * 5000, "x" + ".x" * 100_000 + "("])
def test_what_is_nested_too_deeply_is_a_syntax_error(text: str) -> None:
    with pytest.raises(SyntaxError):
        parse_module(text)
    with pytest.raises(SyntaxError):
        parse_expression(text)


def test_a_hostile_reference_or_formula_is_told() -> None:
    assert not uses_torch(f"import torch\nx = {DEEP}")
    with pytest.raises(UsageError, match="at most"):
        compile_expr(DEEP)
    with pytest.raises(UsageError, match=r"nested|parenthes"):
        compile_expr("(" * 300)


def test_threads_that_parse_at_once_get_whole_trees() -> None:
    text = "\n".join(f"x{i} = [{i}, (a, b), {{c: d}}]" for i in range(200))
    expected = ast.dump(parse_module(text))
    found: list[str] = []

    def work() -> None:
        found.extend(ast.dump(parse_module(text)) for _ in range(5))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 20
