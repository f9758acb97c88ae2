"""The subset of JSON Schema that requests use: checking values, OpenAI's strict form, JSON out of prose.

Known keywords: type, enum, const, properties, required, additionalProperties, items, minItems, maxItems,
minLength, maxLength, pattern, minimum, maximum, anyOf. Others are annotations.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MAX_PROBLEMS = 8  # told at once
MAX_STARTS = 500  # braces tried as the beginning of an object

_FENCE = re.compile(r"^[ \t]*```[^\n`]*\n(.*?)^[ \t]*```[ \t]*$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"@code\s?([1-9]\d?)?")
_DECODER = json.JSONDecoder(strict=False)  # models leave raw newlines in strings

_TYPES: dict[str, tuple[str, Any]] = {
    "object": ("an object", lambda v: isinstance(v, dict)),
    "array": ("a list", lambda v: isinstance(v, list)),
    "string": ("a text", lambda v: isinstance(v, str)),
    "boolean": ("true or false", lambda v: isinstance(v, bool)),
    "null": ("null", lambda v: v is None),
    "number": ("a number", lambda v: isinstance(v, (int, float)) and not isinstance(v, bool)),
    "integer": (
        "a whole number",
        lambda v: (
            not isinstance(v, bool) and (isinstance(v, int) or (isinstance(v, float) and v.is_integer()))
        ),
    ),
}


def problems(value: Any, schema: Mapping[str, Any]) -> list[str]:
    """What is wrong with a value, in words with its path; empty if it satisfies the schema."""
    found: list[str] = []
    for problem in _problems(value, schema, ""):
        found.append(problem)
        if len(found) == MAX_PROBLEMS:
            break
    return found


def _problems(value: Any, schema: Mapping[str, Any], path: str) -> Iterator[str]:
    at = path or "the answer"
    if "anyOf" in schema:
        tried = [list(_problems(value, choice, path)) for choice in schema["anyOf"]]
        if all(tried):
            yield from min(tried, key=len)
            return
    kinds = schema.get("type")
    kinds = [kinds] if isinstance(kinds, str) else list(kinds or ())
    if kinds and not any(_TYPES[kind][1](value) for kind in kinds):
        yield f"{at} must be {' or '.join(_TYPES[kind][0] for kind in kinds)}, not {_short(value)}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at} must be one of {', '.join(json.dumps(v) for v in schema['enum'])}, not {_short(value)}"
    if "const" in schema and value != schema["const"]:
        yield f"{at} must be {json.dumps(schema['const'])}, not {_short(value)}"
    if isinstance(value, dict):
        yield from _in_object(value, schema, path, at)
    elif isinstance(value, list):
        yield from _size(len(value), schema, "Items", "entries", at)
        if isinstance(schema.get("items"), Mapping):
            for index, item in enumerate(value):
                yield from _problems(item, schema["items"], f"{path}[{index}]")
    elif isinstance(value, str):
        yield from _size(len(value), schema, "Length", "characters", at)
        if "pattern" in schema and not re.search(schema["pattern"], value):
            yield f"{at} must match {schema['pattern']}, not {_short(value)}"
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        if value < schema.get("minimum", value):
            yield f"{at} must be at least {schema['minimum']}, not {value}"
        if value > schema.get("maximum", value):
            yield f"{at} must be at most {schema['maximum']}, not {value}"


def _in_object(value: Mapping[str, Any], schema: Mapping[str, Any], path: str, at: str) -> Iterator[str]:
    known = schema.get("properties", {})
    missing = [name for name in schema.get("required", ()) if name not in value]
    if missing:
        yield f"{at} lacks {', '.join(missing)}"
    others = schema.get("additionalProperties", True)
    for name, item in value.items():
        below = f"{path}.{name}" if path else str(name)
        if name in known:
            yield from _problems(item, known[name], below)
        elif others is False:
            yield f"{at} has an unknown key '{name}'; known: {', '.join(known)}"
        elif isinstance(others, Mapping):
            yield from _problems(item, others, below)


def _size(count: int, schema: Mapping[str, Any], what: str, unit: str, at: str) -> Iterator[str]:
    if count < schema.get(f"min{what}", 0):
        yield f"{at} has {count} {unit}; it needs at least {schema[f'min{what}']}"
    if count > schema.get(f"max{what}", count):
        yield f"{at} has {count} {unit}; at most {schema[f'max{what}']} are allowed"


def _short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:59] + "…"


def strict(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The schema in OpenAI's strict form: all keys required (those that weren't may be null), no others.
    None where that can't say the same (an object with free keys)."""
    if "anyOf" in schema:
        choices = [strict(choice) for choice in schema["anyOf"]]
        return None if None in choices else {**schema, "anyOf": choices}
    out = dict(schema)
    kinds = schema.get("type")
    if kinds == "object" or "properties" in schema:
        known = schema.get("properties")
        if not known or schema.get("additionalProperties", False) is not False:
            return None
        needed = set(schema.get("required", ()))
        out["properties"] = {}
        for name, below in known.items():
            inner = strict(below)
            if inner is None:
                return None
            out["properties"][name] = inner if name in needed else {"anyOf": [inner, {"type": "null"}]}
        out["required"] = list(known)
        out["additionalProperties"] = False
    elif isinstance(schema.get("items"), Mapping):
        inner = strict(schema["items"])
        if inner is None:
            return None
        out["items"] = inner
    return out


def without_nulls(value: Any, schema: Mapping[str, Any]) -> Any:
    """The value without nulls in place of keys that may be left out (the strict form asks for them)."""
    if isinstance(value, dict):
        known, needed = schema.get("properties", {}), schema.get("required", ())
        return {
            name: without_nulls(item, known.get(name, {}))
            for name, item in value.items()
            if not (item is None and name in known and name not in needed and problems(None, known[name]))
        }
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        return [without_nulls(item, schema["items"]) for item in value]
    return value


def objects(text: str) -> list[tuple[dict[str, Any], int, int]]:
    """The outermost JSON objects in a text (alone, fenced or in prose), with where they begin and end."""
    found: list[tuple[dict[str, Any], int, int]] = []
    at = text.find("{")
    for _ in range(MAX_STARTS):
        if at < 0:
            break
        try:
            value, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            found.append((value, at, end))
        at = text.find("{", end)
    return found


def parse(text: str, schema: Mapping[str, Any]) -> Any:
    """The first object in a text that satisfies the schema.

    A string value `@code1` stands for the first fenced block outside the JSON, `@code2` for the second.

    Raises:
        ValueError: says what is wrong, for the model.
    """
    found = objects(text)
    if not found:
        raise ValueError(_syntax(text))
    blocks = [
        m[1] for m in _FENCE.finditer(_blank(text, [(begin, end) for _, begin, end in found])) if m[1].strip()
    ]
    first: list[str] | None = None
    for value, _, _ in found:
        data = without_nulls(_with_code(value, blocks), schema)
        wrong = problems(data, schema)
        if not wrong:
            return data
        first = first or wrong
    raise ValueError("; ".join(first or ()))


def _blank(text: str, spans: Sequence[tuple[int, int]]) -> str:
    for begin, end in spans:
        text = text[:begin] + " " * (end - begin) + text[end:]
    return text


def _with_code(value: Any, blocks: Sequence[str]) -> Any:
    if isinstance(value, dict):
        return {name: _with_code(item, blocks) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_code(item, blocks) for item in value]
    match = _CODE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match:
        number = int(match[1] or 1)
        if number <= len(blocks):
            return blocks[number - 1]
    return value


def _syntax(text: str) -> str:
    at = text.find("{")
    if at < 0:
        return "there is no JSON object in it"
    try:
        _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        return f"it is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}"
    except RecursionError:
        return "its JSON is nested too deeply"
    return "its JSON can't be read"
