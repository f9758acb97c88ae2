"""Expressions over many assignments at once give what they give for one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpdeck.core.columns import Column, OneByOne, Rows, truths
from warpdeck.core.errors import UsageError
from warpdeck.core.expr import compile_expr

NAMES = ("a", "b", "c", "mode")
VALUES = st.one_of(
    st.integers(-9, 99),
    st.sampled_from([2**31, 2**53 + 1, -(2**61), 2**70]),
    st.booleans(),
    st.floats(-1e3, 1e3),
    st.sampled_from(["fast", "safe"]),
)
COLUMN = st.lists(VALUES, min_size=12, max_size=12) | st.lists(st.integers(-9, 99), min_size=12, max_size=12)


def leaves():
    return st.one_of(
        st.integers(0, 70).map(str), st.sampled_from([*NAMES, "2.5", "True", "'fast'", str(2**40)])
    )


def grown(children):
    pair = st.tuples(children, children)
    binary = ["+", "-", "*", "/", "//", "%", "**", "<", "<=", "==", "!=", ">=", ">", "and", "or"]
    return st.one_of(
        st.tuples(pair, st.sampled_from(binary)).map(lambda t: f"({t[0][0]} {t[1]} {t[0][1]})"),
        children.map(lambda c: f"(-{c})"),
        children.map(lambda c: f"(not {c})"),
        st.tuples(pair, st.sampled_from(["min", "max", "ceil_div", "round_up"])).map(
            lambda t: f"{t[1]}({t[0][0]}, {t[0][1]})"
        ),
        st.tuples(children, st.sampled_from(["abs", "ilog2", "is_pow2"])).map(lambda t: f"{t[1]}({t[0]})"),
        pair.map(lambda p: f"({p[0]} in ({p[1]}, 3, 'safe'))"),
        st.tuples(children, pair).map(lambda t: f"({t[1][0]} if {t[0]} else {t[1][1]})"),
        st.tuples(children, pair).map(lambda t: f"({t[1][0]} <= {t[0]} < {t[1][1]})"),
    )


def one_by_one(text: str, columns: dict[str, list[Any]]) -> list[bool]:
    rule = compile_expr(text, NAMES)
    rows = zip(*columns.values(), strict=True)
    return [bool(rule.evaluate(dict(zip(columns, row, strict=True)))) for row in rows]


def together(text: str, columns: dict[str, list[Any]]) -> list[bool]:
    rows = Rows({name: Column.of(values) for name, values in columns.items()}, 12)
    return truths(compile_expr(text, NAMES), rows).tolist()


@given(st.recursive(leaves(), grown, max_leaves=12), st.lists(COLUMN, min_size=4, max_size=4))
def test_agrees_with_one_by_one_or_says_that_it_can_not(text, values):
    columns: dict[str, list[Any]] = dict(zip(NAMES, values, strict=True))
    try:
        found = together(text, columns)
    except OneByOne:
        return
    assert found == one_by_one(text, columns)  # which never fails, then


RULES = [
    "a * b <= 400 and (c > 0 or not a)",
    "b != 0 and a % b == 0",
    "b and a // b > 2",
    "ceil_div(a, 4) * 4 <= round_up(abs(b), 8)",
    "a if mode == 'fast' else b > 3",
    "mode in ('fast', 'slow') or is_pow2(abs(a) + 1)",
    "0 < a < b",
    "0 != b <= a / b",
    "min(a, b, c) < 2.5 * max(a, c)",
    "a > 0 and ilog2(a) < 4",
    "2 ** (a % 8) > b",
]


@pytest.mark.parametrize("text", RULES)
def test_common_rules_need_no_python_loop(text):
    rng = np.random.default_rng(1)
    columns: dict[str, list[Any]] = {name: rng.integers(-20, 90, 12).tolist() for name in "abc"}
    columns["b"][3] = 0
    columns["mode"] = ["fast", "safe", "slow"] * 4
    assert together(text, columns) == one_by_one(text, columns)


def test_what_can_not_be_computed_in_64_bits_is_left_to_python():
    big = {"a": [2**40] * 12, "b": [2**40] * 12, "c": [0] * 12, "mode": ["fast"] * 12}
    for text in ("a * b > 0", "a / b * 2 ** 70 > 1", "b % c == 0", "mode + mode == 'x'", "mode < 'g'"):
        with pytest.raises(OneByOne):
            together(text, big)
    with pytest.raises(UsageError, match="zero"):
        one_by_one("b % c == 0", big)
