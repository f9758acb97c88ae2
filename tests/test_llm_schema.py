"""The schema subset: what is wrong with a value, the strict form, JSON in prose."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warpdeck.agents.llm import schema as schemas

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "idea": {"type": "string", "minLength": 1},
        "kind": {"enum": ["a", "b"]},
        "launches": {
            "type": "array",
            "minItems": 1,
            "maxItems": 3,
            "items": {
                "type": "object",
                "properties": {"grid": {"type": "integer", "minimum": 1, "maximum": 9}},
                "required": ["grid"],
                "additionalProperties": False,
            },
        },
        "note": {"type": ["string", "null"]},
        "share": {"type": "number"},
        "sure": {"type": "boolean"},
    },
    "required": ["idea", "launches"],
    "additionalProperties": False,
}
GOOD = {"idea": "x", "launches": [{"grid": 2}]}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"idea": 3}, "idea must be a text, not 3"),
        ({"idea": ""}, "idea has 0 characters; it needs at least 1"),
        ({"kind": "c"}, 'kind must be one of "a", "b", not "c"'),
        ({"launches": []}, "launches has 0 entries; it needs at least 1"),
        ({"launches": [{"grid": 1}] * 4}, "launches has 4 entries; at most 3 are allowed"),
        ({"launches": [{"grid": 0}]}, "launches[0].grid must be at least 1, not 0"),
        ({"launches": [{"grid": 10}]}, "launches[0].grid must be at most 9, not 10"),
        ({"launches": [{"grid": True}]}, "launches[0].grid must be a whole number, not true"),
        ({"launches": [{"grid": 1, "x": 1}]}, "launches[0] has an unknown key 'x'; known: grid"),
        ({"launches": [{}]}, "launches[0] lacks grid"),
        ({"note": 1}, "note must be a text or null, not 1"),
        ({"share": "a"}, "share must be a number"),
        ({"sure": 1}, "sure must be true or false, not 1"),
        ({"more": 1}, "the answer has an unknown key 'more'"),
    ],
)
def test_what_is_wrong_is_named_with_its_path(change: dict[str, Any], words: str) -> None:
    (problem,) = schemas.problems({**GOOD, **change}, SCHEMA)
    assert problem.startswith(words)


def test_the_strict_form_says_the_same() -> None:
    exact = schemas.strict(SCHEMA)
    assert exact is not None
    assert exact["required"] == list(SCHEMA["properties"]) and exact["additionalProperties"] is False
    full = {**GOOD, "kind": None, "note": None, "share": None, "sure": None}
    assert schemas.problems(full, exact) == []
    assert schemas.without_nulls(full, SCHEMA) == {**GOOD, "note": None}  # a null that is meant stays
    assert schemas.problems(schemas.without_nulls(full, SCHEMA), SCHEMA) == []
    assert schemas.strict({"type": "object", "additionalProperties": {"type": "string"}}) is None
    assert schemas.strict({"type": "object", "properties": {"a": {"type": "object"}}}) is None


NAMES = st.sampled_from(["a", "b", "c"])
LEAVES = st.sampled_from(["string", "integer", "number", "boolean"]).map(lambda kind: {"type": kind})


def _objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def build(known: dict[str, Any], needed: set[str]) -> dict[str, Any]:
        required = sorted(needed & set(known))
        return {"type": "object", "properties": known, "required": required, "additionalProperties": False}

    return st.one_of(
        st.builds(build, st.dictionaries(NAMES, inner, min_size=1, max_size=3), st.sets(NAMES)),
        inner.map(lambda items: {"type": "array", "items": items}),
    )


SHAPES = st.recursive(LEAVES, _objects, max_leaves=6)


def _value(shape: dict[str, Any]) -> st.SearchStrategy[Any]:
    kind = shape["type"]
    if kind == "object":
        needed = {name: _value(shape["properties"][name]) for name in shape["required"]}
        free = {n: _value(s) for n, s in shape["properties"].items() if n not in shape["required"]}
        return st.fixed_dictionaries(needed, optional=free)
    if kind == "array":
        return st.lists(_value(shape["items"]), max_size=2)
    leaves = {"string": st.text(max_size=5), "integer": st.integers(), "boolean": st.booleans()}
    return leaves.get(kind, st.floats(allow_nan=False, allow_infinity=False))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_strict_answer_becomes_one_that_fits(data: st.DataObject) -> None:
    """Whatever satisfies a schema, with nulls for what is left out, satisfies the strict form, and back."""
    shape = data.draw(SHAPES)
    value = data.draw(_value(shape))
    exact = schemas.strict(shape)
    assert exact is not None and schemas.problems(value, shape) == []

    def filled(value: Any, shape: dict[str, Any]) -> Any:
        if shape["type"] == "object":
            return {n: filled(value[n], s) if n in value else None for n, s in shape["properties"].items()}
        return [filled(item, shape["items"]) for item in value] if shape["type"] == "array" else value

    full = filled(value, shape)
    assert schemas.problems(full, exact) == []
    assert schemas.without_nulls(full, shape) == value


@settings(max_examples=200, deadline=None)
@given(
    st.text(max_size=40),
    st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=3),
    st.text(max_size=40),
)
def test_json_is_found_in_prose(before: str, value: dict[str, str], after: str) -> None:
    text = f"{before.replace('{', '')}\n```json\n{json.dumps(value)}\n```\n{after}"
    assert schemas.parse(text, {"type": "object"}) == value


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.text(max_size=300), st.text(alphabet='{}[]",:\\ab1`\n', max_size=200)))
def test_any_text_parses_or_says_why(text: str) -> None:
    try:
        value = schemas.parse(text, SCHEMA)
    except ValueError as error:
        assert str(error)
    else:
        assert schemas.problems(value, SCHEMA) == []


def test_deep_nesting_is_no_crash() -> None:
    with pytest.raises(ValueError):
        schemas.parse('{"a":' * 100_000, SCHEMA)


def test_raw_newlines_in_strings_are_forgiven_and_the_fitting_object_is_taken() -> None:
    text = '{"thought": 1} and then {"idea": "line\nline", "launches": [{"grid": 1}]}'
    assert schemas.parse(text, SCHEMA)["idea"] == "line\nline"


def test_code_blocks_stand_in_for_their_places() -> None:
    data = json.dumps({"idea": "@code2", "launches": [{"grid": 1}], "note": "@code"})
    text = f"```json\n{data}\n```\n```cuda\nA {{\n```\n\n```\nB\n```\n"
    assert schemas.parse(text, SCHEMA) == {"idea": "B\n", "launches": [{"grid": 1}], "note": "A {\n"}
