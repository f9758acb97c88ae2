"""Expressions over many assignments at once, with NumPy.

The result is what `Expr.evaluate` gives for each assignment, or `OneByOne` is raised: where an assignment may
fail (division by zero), and where NumPy computes otherwise than Python (integers beyond 64 bits, strings in
arithmetic, `//` and `%` of floating-point numbers). `and`, `or`, `if` and chained comparisons evaluate their
later operands only where Python would.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .expr import Expr, parsed

_MOST = 1 << 62  # integers stay below, so that none overflows
_EXACT = 1 << 53  # as floating-point numbers
_COMPARISON: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: np.equal,
    ast.NotEq: np.not_equal,
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
}
_EQUALITY = (ast.Eq, ast.NotEq, ast.In, ast.NotIn)


class OneByOne(Exception):
    """This expression has to be evaluated for one assignment after the other."""


@dataclass(frozen=True)
class Column:
    """A value for each assignment, or one for all (no dimension). `most`: no integer among them is larger in
    magnitude; 0 where they aren't integers (but truth values, floating-point numbers or any objects)."""

    values: NDArray[Any]
    most: int = 0

    @classmethod
    def of(cls, values: Sequence[Any] | Any) -> Column:
        """Of Python's numbers and strings, or of one."""
        many: Sequence[Any] = values if isinstance(values, list | tuple) else [values]
        kinds = {type(value) for value in many}
        most = max((abs(v) for v in many), default=0) if kinds <= {int, bool} else 0
        if kinds == {bool}:
            array = np.array(values, dtype=bool)
        elif kinds <= {int, bool} and most < _MOST:
            array = np.array(values, dtype=np.int64)
        elif kinds == {float}:
            array = np.array(values, dtype=np.float64)
        else:
            array = np.empty(np.shape(values), dtype=object)
            array[...] = values
        return cls(array, int(most) if array.dtype == np.int64 else 0)

    def at(self, index: NDArray[np.intp]) -> Column:
        """Of some assignments."""
        return self if self.values.ndim == 0 else Column(self.values[index], self.most)

    @property
    def kind(self) -> str:
        """As NumPy calls it: i, b, f or O."""
        return self.values.dtype.kind


class Rows:
    """Assignments: a column of each name, and how many they are."""

    def __init__(self, columns: Mapping[str, Column], size: int) -> None:
        self._columns, self.size = dict(columns), size
        self._parent: tuple[Rows, NDArray[np.intp]] | None = None

    def __getitem__(self, name: str) -> Column:
        if name not in self._columns:
            if self._parent is None:
                raise OneByOne  # which says what is missing
            rows, index = self._parent
            self._columns[name] = rows[name].at(index)
        return self._columns[name]

    def at(self, index: NDArray[np.intp]) -> Rows:
        """Some of them; their columns are made when asked for."""
        if len(index) == self.size:
            return self
        some = Rows({}, len(index))
        some._parent = (self, index)
        return some


def truths(rule: Expr, rows: Rows) -> NDArray[np.bool_]:
    """Whether a rule holds, for each assignment. Raises `OneByOne`."""
    with np.errstate(all="ignore"):  # Python's floating-point numbers overflow in silence, too
        return _truth(parsed(rule.text), rows)


def _truth(node: ast.expr, rows: Rows) -> NDArray[np.bool_]:
    match node:
        case ast.BoolOp(op=op, values=[first, *others]):
            result = _truth(first, rows)
            wanted = isinstance(op, ast.And)  # the value with which later operands are looked at
            for other in others:
                left = np.flatnonzero(result == wanted)
                if not len(left):
                    break
                result[left] = _truth(other, rows.at(left))
            return result
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return ~_truth(operand, rows)
        case ast.Compare():
            return _compared(node, rows)
    column = _column(node, rows)
    if column.kind == "O":
        raise OneByOne
    return _full(column.values.astype(bool), rows.size)


def _full(values: NDArray[Any], size: int) -> NDArray[Any]:
    return values if values.ndim else np.full(size, values)


def _column(node: ast.expr, rows: Rows) -> Column:
    match node:
        case ast.Constant(value=value):
            return Column.of(value)
        case ast.Name(id=name):
            return rows[name]
        case ast.BoolOp() | ast.Compare() | ast.UnaryOp(op=ast.Not()):
            return Column(_truth(node, rows))
        case ast.UnaryOp(op=op, operand=operand):
            column = _number(_column(operand, rows))
            return Column(-column.values, column.most) if isinstance(op, ast.USub) else column
        case ast.BinOp(left=left, op=op, right=right):
            return _arithmetic(op, _column(left, rows), _column(right, rows))
        case ast.IfExp():
            return _chosen(node, rows)
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _called(name, [_number(_column(argument, rows)) for argument in arguments])
    raise OneByOne


def _number(column: Column) -> Column:
    """Truth values as integers."""
    if column.kind == "O":
        raise OneByOne
    return Column(column.values.astype(np.int64), 1) if column.kind == "b" else column


def _alike(*columns: Column) -> list[Column]:
    """All integers, or all floating-point numbers."""
    numbers = [_number(column) for column in columns]
    if len({column.kind for column in numbers}) == 1:
        return numbers
    return [_as_float(column) for column in numbers]


def _as_float(column: Column) -> Column:
    if column.most >= _EXACT:
        raise OneByOne
    return Column(column.values.astype(np.float64))


def _arithmetic(op: ast.operator, left: Column, right: Column) -> Column:
    a, b = _alike(left, right)
    x, y, whole = a.values, b.values, a.kind == "i"
    match op:
        case ast.Add():
            return _within(lambda: x + y, whole, a.most + b.most)
        case ast.Sub():
            return _within(lambda: x - y, whole, a.most + b.most)
        case ast.Mult():
            return _within(lambda: x * y, whole, a.most * b.most)
        case ast.Div():
            x, y = _as_float(a).values, _as_float(b).values
            return Column(x / _no_zero(y))
        case ast.FloorDiv() if whole:
            return Column(x // _no_zero(y), max(a.most, 1))
        case ast.Mod() if whole:
            return Column(x % _no_zero(y), b.most)
        case ast.Pow() if whole and not np.any(y < 0) and b.most < 63:
            return _within(lambda: x**y, whole, max(a.most, 1) ** b.most)
    raise OneByOne


def _within(compute: Callable[[], NDArray[Any]], whole: bool, most: int) -> Column:
    if most >= _MOST:
        raise OneByOne
    return Column(compute(), most if whole else 0)


def _no_zero(values: NDArray[Any]) -> NDArray[Any]:
    if not np.all(values):
        raise OneByOne  # which tells of which assignment
    return values


def _called(name: str, columns: list[Column]) -> Column:
    if name in ("min", "max"):
        return reduce(_greater if name == "max" else _less, columns)
    first, *others = columns
    if name == "abs":
        return Column(np.abs(first.values), first.most)
    if any(column.kind != "i" for column in columns):
        raise OneByOne
    x = first.values
    if name == "is_pow2":
        return Column((x > 0) & (x & (x - 1) == 0))
    if name == "ilog2":
        if first.most >= _EXACT or np.any(x < 1):
            raise OneByOne
        return Column(np.frexp(x.astype(np.float64))[1].astype(np.int64) - 1, 64)
    y = _no_zero(others[0].values)
    if name == "ceil_div":
        return Column(-(-x // y), max(first.most, 1))
    if name == "round_up":
        return _within(lambda: -(-x // y) * y, True, max(first.most, 1) + others[0].most)
    raise OneByOne


def _less(first: Column, second: Column) -> Column:
    a, b = _alike(first, second)
    return Column(np.where(b.values < a.values, b.values, a.values), max(a.most, b.most))


def _greater(first: Column, second: Column) -> Column:
    a, b = _alike(first, second)
    return Column(np.where(b.values > a.values, b.values, a.values), max(a.most, b.most))


def _compared(node: ast.Compare, rows: Rows) -> NDArray[np.bool_]:
    result = np.ones(rows.size, dtype=bool)
    index = np.arange(rows.size)  # of those for which all held so far
    left = _column(node.left, rows)
    for op, comparator in zip(node.ops, node.comparators, strict=True):
        if isinstance(op, ast.In | ast.NotIn):
            if len(node.ops) > 1 or not isinstance(comparator, ast.Tuple | ast.List):
                raise OneByOne
            found = np.zeros(rows.size, dtype=bool)
            for item in comparator.elts:
                found |= _related(ast.Eq(), left, _column(item, rows))
            return found if isinstance(op, ast.In) else ~found
        some = rows.at(index)
        right = _column(comparator, some)
        holds = _full(_related(op, left, right), some.size)
        result[index] = holds
        left, index = right.at(np.flatnonzero(holds)), index[holds]
        if not len(index):
            break
    return result


def _related(op: ast.cmpop, left: Column, right: Column) -> NDArray[np.bool_]:
    if "O" in (left.kind, right.kind):
        if not isinstance(op, _EQUALITY):
            raise OneByOne
        x, y = left.values.astype(object), right.values.astype(object)
    else:
        x, y = (column.values for column in _alike(left, right))
    return np.asarray(_COMPARISON[type(op)](x, y)).astype(bool)


def _chosen(node: ast.IfExp, rows: Rows) -> Column:
    test = _truth(node.test, rows)
    parts = [
        (index, _column(branch, rows.at(index)))
        for index, branch in ((np.flatnonzero(test), node.body), (np.flatnonzero(~test), node.orelse))
        if len(index)
    ]
    if len(parts) == 1:
        return parts[0][1]
    columns = _alike(*(column for _, column in parts))
    values = np.empty(rows.size, dtype=columns[0].values.dtype)
    for (index, _), column in zip(parts, columns, strict=True):
        values[index] = column.values
    return Column(values, max(column.most for column in columns))
