"""Restricted expressions over knobs and case parameters, as written in `workload.toml`.

Python's own grammar is parsed to a tree, checked node by node and turned into closures; nothing is
ever passed to `eval`. Allowed: numbers, strings, True/False, names, `+ - * / // % **`, comparisons
(chained), `and or not`, `in` / `not in` a literal tuple or list, `a if c else b`, and the functions in
`FUNCTIONS`. Text, tree depth and powers are bounded, so that no expression can hang or exhaust memory.
"""

from __future__ import annotations

import ast
import difflib
import operator
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from ..telemetry.parsing import parse_expression
from .errors import UsageError

MAX_TEXT = 2000  # characters
MAX_DEPTH = 60  # nested operations
MAX_POWER_BITS = 1024  # of an integer power's result
MAX_VALUES = 100_000  # of a list
MAX_LIST_TEXT = 200_000  # characters of one

Number = int | float | bool
Evaluator = Callable[[Mapping[str, Any]], Any]


def ceil_div(a: int, b: int) -> int:
    """Smallest integer >= a / b."""
    return -(-a // b)


def round_up(a: int, b: int) -> int:
    """Smallest multiple of `b` that is >= a."""
    return ceil_div(a, b) * b


def ilog2(a: int) -> int:
    """Floor of the base-2 logarithm. Raises ValueError for a < 1."""
    if a < 1:
        raise ValueError(f"ilog2 needs a positive integer, got {a}")
    return int(a).bit_length() - 1


def is_pow2(a: int) -> bool:
    """Whether `a` is a positive power of two."""
    return a > 0 and int(a) == a and int(a) & (int(a) - 1) == 0


# name -> (function, fewest arguments, most arguments)
FUNCTIONS: dict[str, tuple[Callable[..., Any], int, int]] = {
    "min": (min, 2, 16),
    "max": (max, 2, 16),
    "abs": (abs, 1, 1),
    "ceil_div": (ceil_div, 2, 2),
    "round_up": (round_up, 2, 2),
    "ilog2": (ilog2, 1, 1),
    "is_pow2": (is_pow2, 1, 1),
}


def _power(a: Number, b: Number) -> Number:
    if isinstance(a, int) and isinstance(b, int) and b > 0 and a.bit_length() * b > MAX_POWER_BITS:
        raise ValueError(f"{a} ** {b} is too large")
    return a**b


_ARITHMETIC: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}

_COMPARISON: dict[type[ast.AST], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}

_UNARY: dict[type[ast.AST], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
}


@dataclass(frozen=True)
class Expr:
    """A compiled expression; call it with a value for each of `names`."""

    text: str
    names: frozenset[str]
    _evaluate: Evaluator = field(repr=False, compare=False)

    def __call__(self, **env: Any) -> Any:
        """Value for keyword arguments; others than `names` are ignored. Raises UsageError."""
        return self.evaluate(env)

    def evaluate(self, env: Mapping[str, Any]) -> Any:
        """Value in `env` (int, float, bool or str). Raises UsageError for a missing name or a failed
        operation (division by zero, mixed types)."""
        try:
            return self._evaluate(env)
        except KeyError as e:
            raise UsageError(f"expression {self.text!r}: no value for {e.args[0]!r}") from None
        except (ArithmeticError, TypeError, ValueError) as e:
            values = ", ".join(f"{k}={env[k]!r}" for k in sorted(self.names) if k in env)
            raise UsageError(f"expression {self.text!r} with {values or 'no names'}: {e}") from None


def near(name: str, known: Collection[str]) -> str:
    """A hint for an unknown name: the closest known ones, or all of them if they are few."""
    close = difflib.get_close_matches(name, list(known), n=3)
    close = close or [k for k in known if k.lower() == name.lower()]
    if close:
        return f"did you mean {' or '.join(repr(c) for c in close)}?"
    if not known:
        return "there are none"
    shown = sorted(known)
    return f"known: {', '.join(shown[:12])}{', …' if len(shown) > 12 else ''}"


def compile_expr(text: str, names: Collection[str] | None = None) -> Expr:
    """Compile an expression.

    Args:
        text: the expression.
        names: the names it may use; None allows any.

    Raises:
        UsageError: the text, the position in it, and what isn't allowed or understood there.
    """
    return _compile(text, None if names is None else frozenset(names))


@lru_cache(maxsize=4096)
def _compile(text: str, names: frozenset[str] | None) -> Expr:
    tree = parsed(text)
    compiler = _Compiler(text, names)
    evaluate = compiler.node(tree, 0)
    return Expr(text, frozenset(compiler.used), evaluate)


def parsed(text: str, most: int = MAX_TEXT) -> ast.expr:
    """An expression's tree, nothing of which is checked yet. Raises UsageError if it isn't one."""
    if not isinstance(text, str) or not text.strip():
        raise UsageError(f"expression {text!r} is empty; write a number or a formula")
    if len(text) > most:
        raise UsageError(f"expression {text[:40]!r}… has {len(text)} characters; at most {most}")
    try:
        return parse_expression(text.strip())
    except SyntaxError as e:
        raise UsageError(f"expression {_cut(text)!r}, position {e.offset or 1}: {e.msg}") from None
    except ValueError:
        raise UsageError(f"expression {_cut(text)!r} holds a null byte") from None


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[:40]}…"


class _Compiler:
    """Walks the checked tree once; each method returns a closure over an environment."""

    def __init__(self, text: str, names: frozenset[str] | None) -> None:
        self.text = text
        self.names = names
        self.used: set[str] = set()

    def fail(self, node: ast.AST, what: str) -> UsageError:
        position = getattr(node, "col_offset", 0) + 1
        return UsageError(f"expression {self.text!r}, position {position}: {what}")

    def node(self, node: ast.AST, depth: int) -> Evaluator:
        if depth > MAX_DEPTH:
            raise self.fail(node, f"nested more than {MAX_DEPTH} deep")
        match node:
            case ast.Constant(value=value):
                return self.constant(node, value)
            case ast.Name(id=name):
                return self.name(node, name)
            case ast.BinOp(left=left, op=op, right=right):
                return self.arithmetic(node, op, self.node(left, depth + 1), self.node(right, depth + 1))
            case ast.UnaryOp(op=op, operand=operand):
                return self.unary(node, op, self.node(operand, depth + 1))
            case ast.BoolOp(op=op, values=values):
                return self.boolean(op, [self.node(v, depth + 1) for v in values])
            case ast.Compare():
                return self.compare(node, depth)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                c, a, b = (self.node(n, depth + 1) for n in (test, body, orelse))
                return lambda env: a(env) if c(env) else b(env)
            case ast.Call():
                return self.call(node, depth)
            case ast.Tuple() | ast.List():
                raise self.fail(node, "a list may only stand on the right of `in`")
            case _:
                raise self.fail(node, f"{type(node).__name__} isn't allowed in an expression")

    def constant(self, node: ast.AST, value: object) -> Evaluator:
        if not isinstance(value, int | float | str):
            raise self.fail(node, f"{value!r} isn't a number or a string")
        return lambda env: value

    def name(self, node: ast.AST, name: str) -> Evaluator:
        if self.names is not None and name not in self.names:
            raise self.fail(node, f"unknown name {name!r}; {near(name, self.names)}")
        self.used.add(name)
        return operator.itemgetter(name)

    def arithmetic(self, node: ast.AST, op: ast.AST, left: Evaluator, right: Evaluator) -> Evaluator:
        apply = _ARITHMETIC.get(type(op))
        if apply is None:
            raise self.fail(node, f"operator {type(op).__name__} isn't allowed; use + - * / // % **")

        def run(env: Mapping[str, Any]) -> Any:
            a, b = left(env), right(env)
            if a.__class__ is str or b.__class__ is str:  # 'x' * 10**9, '%999d' % 1
                raise TypeError("arithmetic on a string")
            return apply(a, b)

        return run

    def unary(self, node: ast.AST, op: ast.AST, operand: Evaluator) -> Evaluator:
        apply = _UNARY.get(type(op))
        if apply is None:
            raise self.fail(node, f"operator {type(op).__name__} isn't allowed")
        return lambda env: apply(operand(env))

    def boolean(self, op: ast.AST, values: list[Evaluator]) -> Evaluator:
        # Results are True or False, unlike Python's own and/or, since restrictions are truth values.
        if isinstance(op, ast.And):
            return lambda env: all(v(env) for v in values)
        return lambda env: any(v(env) for v in values)

    def compare(self, node: ast.Compare, depth: int) -> Evaluator:
        operands = [self.node(node.left, depth + 1)]
        operators: list[Callable[[Any, Any], bool]] = []
        for op, right in zip(node.ops, node.comparators, strict=True):
            apply = _COMPARISON.get(type(op))
            if apply is None:
                raise self.fail(node, f"comparison {type(op).__name__} isn't allowed")
            if isinstance(op, ast.In | ast.NotIn):
                if not isinstance(right, ast.Tuple | ast.List):
                    raise self.fail(right, "`in` needs a literal tuple or list on its right")
                items = [self.node(item, depth + 1) for item in right.elts]
                operands.append(lambda env, items=items: tuple(i(env) for i in items))
            else:
                operands.append(self.node(right, depth + 1))
            operators.append(apply)
        if len(operators) == 1:
            only, left, right = operators[0], operands[0], operands[1]
            return lambda env: only(left(env), right(env))

        def run(env: Mapping[str, Any]) -> bool:
            a = operands[0](env)
            for apply, right in zip(operators, operands[1:], strict=True):
                b = right(env)
                if not apply(a, b):
                    return False
                a = b
            return True

        return run

    def call(self, node: ast.Call, depth: int) -> Evaluator:
        if not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS:
            called = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)
            raise self.fail(node, f"unknown function {called!r}; {near(called, FUNCTIONS)}")
        function, fewest, most = FUNCTIONS[node.func.id]
        if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
            raise self.fail(node, f"{node.func.id} takes plain arguments only")
        if not fewest <= len(node.args) <= most:
            wanted = str(fewest) if fewest == most else f"{fewest} to {most}"
            raise self.fail(node, f"{node.func.id} takes {wanted} arguments, got {len(node.args)}")
        arguments = [self.node(a, depth + 1) for a in node.args]
        if len(arguments) == 1:
            (only,) = arguments
            return lambda env: function(only(env))
        if len(arguments) == 2:
            first, second = arguments
            return lambda env: function(first(env), second(env))
        return lambda env: function(*[a(env) for a in arguments])


def value_list(text: str) -> tuple[Any, ...]:
    """The values of a list as tuning problems write it, such as `[1, 2] + list(range(32, 1025, 32))`.

    Allowed: lists and tuples of expressions, `range`, `list`, `tuple` and `sorted` of them, sums of them, and
    comprehensions over them. At most 100,000 values.

    Raises:
        UsageError: the text, the position in it, and what isn't allowed or understood there.
    """
    tree = parsed(text, MAX_LIST_TEXT)
    return tuple(_ListReader(_cut(text)).values(tree, {}, 0))


class _ListReader:
    """Walks a list's tree; single values are left to `_Compiler`."""

    def __init__(self, text: str) -> None:
        self.text = text

    def fail(self, node: ast.AST, what: str) -> UsageError:
        return _Compiler(self.text, None).fail(node, what)

    def scalar(self, node: ast.expr, env: Mapping[str, Any]) -> Any:
        compiler = _Compiler(self.text, frozenset(env))
        evaluate = compiler.node(node, 0)
        return Expr(self.text, frozenset(compiler.used), evaluate).evaluate(env)

    def values(self, node: ast.expr, env: Mapping[str, Any], depth: int) -> list[Any]:
        if depth > MAX_DEPTH:
            raise self.fail(node, f"nested more than {MAX_DEPTH} deep")
        match node:
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                found = [self.scalar(e, env) for e in elements]
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                found = self.values(left, env, depth + 1) + self.values(right, env, depth + 1)
            case ast.Call(func=ast.Name(id="range"), args=arguments, keywords=[]) if 1 <= len(arguments) <= 3:
                found = self.range(node, [self.scalar(a, env) for a in arguments])
            case ast.Call(func=ast.Name(id="list" | "tuple"), args=[only], keywords=[]):
                found = self.values(only, env, depth + 1)
            case ast.Call(func=ast.Name(id="sorted"), args=[only], keywords=[]):
                found = self.sorted(node, self.values(only, env, depth + 1))
            case (
                ast.ListComp(elt=element, generators=[generator])
                | ast.GeneratorExp(elt=element, generators=[generator])
            ):
                found = self.comprehension(element, generator, env, depth + 1)
            case _:
                raise self.fail(node, "a list is needed: [1, 2], range(…), a sum or comprehension of them")
        if len(found) > MAX_VALUES:
            raise self.fail(node, f"more than {MAX_VALUES:,} values")
        return found

    def range(self, node: ast.AST, bounds: list[Any]) -> list[int]:
        if not all(type(b) is int for b in bounds) or (len(bounds) == 3 and not bounds[2]):
            raise self.fail(node, "range needs whole numbers, and a step other than 0")
        found = range(*bounds)
        if max(map(abs, bounds)) > sys.maxsize or len(found) > MAX_VALUES:
            raise self.fail(node, f"more than {MAX_VALUES:,} values")
        return list(found)

    def sorted(self, node: ast.AST, found: list[Any]) -> list[Any]:
        try:
            return sorted(found)
        except TypeError:
            raise self.fail(node, "numbers and strings can't be sorted together") from None

    def comprehension(
        self, element: ast.expr, generator: ast.comprehension, env: Mapping[str, Any], depth: int
    ) -> list[Any]:
        if not isinstance(generator.target, ast.Name) or generator.is_async:
            raise self.fail(element, "a comprehension needs one plain name")
        compiler = _Compiler(self.text, frozenset({*env, generator.target.id}))
        evaluate = compiler.node(element, depth)
        tests = [compiler.node(test, depth) for test in generator.ifs]
        found = []
        for value in self.values(generator.iter, env, depth):
            bound = {**env, generator.target.id: value}
            if all(Expr(self.text, frozenset(compiler.used), t).evaluate(bound) for t in tests):
                found.append(Expr(self.text, frozenset(compiler.used), evaluate).evaluate(bound))
        return found
