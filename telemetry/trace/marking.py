"""Finds the stage markers in a Numba kernel's module, and refuses what looks like one but isn't.

Standard library only.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar, cast

from . import layout

MODULE = "warpdeck.kernels.stages"
_SECOND = {"stage": "payload", "mark": "payload", "value": "number", "start": "token", "stop": "token"} | {
    "issue": "flow",
    "done": "flow",
}  # what a marker takes beside its name
_ALL = (*_SECOND, "pin")
_Node = TypeVar("_Node", bound=ast.AST)


class MarkerError(ValueError):
    """A marker that can't be one. The message begins with the file and line."""


def imported(tree: ast.AST) -> dict[str, str]:
    """What a module calls the markers: dotted name -> marker."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        prefixes = []
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module == MODULE:
            for alias in node.names:
                if alias.name == "*":
                    names |= {marker: marker for marker in _ALL}
                elif alias.name in _ALL:
                    names[alias.asname or alias.name] = alias.name
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            prefixes = [a.asname or a.name for a in node.names if f"{node.module}.{a.name}" == MODULE]
        elif isinstance(node, ast.Import):
            prefixes = [alias.asname or alias.name for alias in node.names if alias.name == MODULE]
        names |= {f"{prefix}.{marker}": marker for prefix in prefixes for marker in _ALL}
    return names


def dotted(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (head := dotted(node.value)) is not None:
        return f"{head}.{node.attr}"
    return None


@dataclass(frozen=True)
class Call:
    """A marker's arguments: its name's id, and the expression that follows."""

    id: int
    second: ast.expr | None


@dataclass
class Function:
    """The function being rewritten."""

    node: ast.AST
    marked: bool = False  # it has markers
    first: ast.AST | None = None  # the first of them, once seen
    open: list[int | None] = field(default_factory=list)  # stages that are open, by id; None: a loop


class Rewriter(ast.NodeTransformer):
    """What both ways have in common: finding markers, and refusing what looks like one but isn't."""

    def __init__(self, tree: ast.Module, file: str) -> None:
        self.known = imported(tree)
        self.names: list[str] = []
        self.file = file
        self._functions: list[Function] = []
        self._inside: list[str] = []  # expressions that are functions of their own

    def fail(self, node: ast.AST, message: str) -> NoReturn:
        raise MarkerError(f"{self.file}:{getattr(node, 'lineno', 1)}: {message}")

    def marker(self, node: ast.AST | None) -> str | None:
        """The marker that an expression calls."""
        name = dotted(node.func) if isinstance(node, ast.Call) else None
        return self.known.get(name) if name is not None else None

    def _call(self, call: ast.Call, marker: str) -> Call:
        """A marker's name, as an id, and its second argument."""
        second = _SECOND[marker]
        given = dict(zip(("name", second), call.args, strict=False))
        words = {k.arg: k.value for k in call.keywords if k.arg in ("name", second) and k.arg not in given}
        given |= {str(word): value for word, value in words.items()}
        name = given.get("name")
        if len(call.args) + len(call.keywords) != len(given) or name is None:
            self.fail(call, f'{marker}() takes a name and a {second}: {marker}("name", {second})')
        if marker == "value" and second not in given:
            self.fail(call, "value() needs the number to record")
        if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
            self.fail(name, f"{marker}(): the name must be a string literal, since it becomes a number")
        if not name.value or not name.value.isprintable():
            self.fail(name, f"{marker}(): {name.value!r} is no name for a stage")
        if name.value not in self.names:
            self.names.append(name.value)
        if len(self.names) > layout.MAX_NAMES:
            self.fail(name, f"more than {layout.MAX_NAMES} names of stages; say the difference by payloads")
        if second in given:
            self.visit(given[second])
        return Call(self.names.index(name.value) + 1, given.get(second))

    # What the two ways do with a marker: the statements that take its place.

    def ranged(self, node: ast.With, stages: Sequence[Call]) -> list[ast.stmt]:
        raise NotImplementedError

    def event(self, node: ast.Expr, marker: str, call: Call) -> list[ast.stmt]:
        raise NotImplementedError

    def pinned(self, node: ast.Assign, places: Sequence[ast.expr]) -> list[ast.stmt]:
        raise NotImplementedError

    def function(self, node: ast.FunctionDef, function: Function) -> None:
        """A function with markers was rewritten."""

    # -- statements --

    def visit_With(self, node: ast.With) -> Any:
        calls = [item.context_expr for item in node.items if self.marker(item.context_expr) == "stage"]
        if not calls:
            return self.generic_visit(node)
        if len(calls) < len(node.items):
            self.fail(node, "stage() can't share a `with` statement; nest them")
        if any(item.optional_vars is not None for item in node.items):
            self.fail(node, "stage() gives nothing to name with `as`")
        self._marks(node)
        return self.ranged(node, [self._call(cast("ast.Call", call), "stage") for call in calls])

    def visit_Expr(self, node: ast.Expr) -> Any:
        marker = self.marker(node.value)
        if marker is None:
            return self.generic_visit(node)
        if marker == "stage":
            self.fail(node, 'stage() opens a range: write `with stage("name"):`')
        if marker == "pin":
            self.fail(node, "assign what pin() gives: a = pin(a)")
        self._marks(node)
        return self.event(node, marker, self._call(cast("ast.Call", node.value), marker))

    def visit_Assign(self, node: ast.Assign) -> Any:
        if self.marker(node.value) != "pin":
            return self.generic_visit(node)
        values = cast("ast.Call", node.value).args
        target = node.targets[0]
        places = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
        same = len(places) == len(values) and all(
            ast.unparse(place) == ast.unparse(given) for place, given in zip(places, values, strict=True)
        )
        if len(node.targets) != 1 or not same or cast("ast.Call", node.value).keywords:
            self.fail(node, "pin() is assigned to what it is given: a = pin(a), or a, b = pin(a, b)")
        for given in values:
            self.visit(given)
        self._marks(node)
        return self.pinned(node, values)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        self._not_hiding(node, node.name)
        for part in (*node.decorator_list, node.args):
            self.visit(part)
        self._functions.append(Function(node, self._marked(node)))
        self._block(node)
        function = self._functions.pop()
        if function.first is not None:
            if any(_is_device(decorator) for decorator in node.decorator_list):
                self.fail(
                    function.first,
                    f"{node.name} is a device function; markers belong in the kernel, around its call",
                )
            if node.args.vararg or node.args.kwarg or node.args.kwonlyargs or node.args.defaults:
                self.fail(
                    node, f"{node.name} has markers: its parameters must be plain ones, without defaults"
                )
            outer = next((f for f in self._functions if f.first is not None), None)
            if outer is not None:
                self.fail(function.first, f"a marker in {node.name}, which is a function inside a kernel")
            self.function(node, function)
        return node

    def _marked(self, node: ast.AST) -> bool:
        """Whether there are markers in a function, those of functions in it aside."""
        return any(
            self.marker(child) is not None or self._marked(child)
            for child in ast.iter_child_nodes(node)
            if not isinstance(child, ast.FunctionDef | ast.ClassDef)
        )

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        self._functions.append(Function(node))
        self.generic_visit(node)
        if (first := self._functions.pop().first) is not None:
            self.fail(first, "a marker in a class; markers belong in the kernel")
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> Any:
        return self._nested(node, "an async function")

    def _marks(self, node: ast.stmt) -> None:
        if not self._functions:
            self.fail(node, "a marker outside of any function; markers belong in the kernel")
        function = self._functions[-1]
        function.first = function.first or node

    def _block(self, node: ast.AST, name: str = "body") -> None:
        """Rewrite a list of statements; it never ends up empty."""
        before = getattr(node, name)
        after: list[ast.stmt] = []
        for statement in before:
            made = self.visit(statement)
            after += made if isinstance(made, list) else [] if made is None else [made]
        if before and not after and name != "orelse":
            after = [placed(ast.Pass(), before[0])]
        setattr(node, name, after)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for name, old in ast.iter_fields(node):
            if isinstance(old, list) and old and isinstance(old[0], ast.stmt):
                self._block(node, name)
            elif isinstance(old, list):
                for part in old:
                    if isinstance(part, ast.AST):
                        self.visit(part)
            elif isinstance(old, ast.AST):
                self.visit(old)
        return node

    # -- what can't hold a marker, or be one --

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        return self._nested(node, "a lambda")

    def visit_ListComp(self, node: ast.ListComp) -> Any:
        return self._nested(node, "a comprehension")

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp  # type: ignore[assignment]

    def _nested(self, node: ast.AST, what: str) -> ast.AST:
        self._inside.append(what)
        self.generic_visit(node)
        self._inside.pop()
        return node

    def visit_Name(self, node: ast.Name) -> Any:
        if not isinstance(node.ctx, ast.Load):
            self._not_hiding(node, node.id)
        self._reference(node)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        self._reference(node)
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> Any:
        self._not_hiding(node, node.arg)
        return self.generic_visit(node)

    def _reference(self, node: ast.expr) -> None:
        marker = self.known.get(dotted(node) or "")
        if marker is None:
            return
        if self._inside:
            self.fail(node, f"{marker}() in {self._inside[-1]}; markers are statements of the kernel")
        how = {"stage": 'with stage("name"):', "pin": "a = pin(a)"}.get(marker, f'{marker}("name")')
        self.fail(node, f"{marker}() is a statement of its own, not part of an expression: {how}")

    def _not_hiding(self, node: ast.AST, name: str) -> None:
        if name in self.known:
            self.fail(node, f"'{name}' is a marker here; give one of the two another name (import … as …)")


def _is_device(decorator: ast.expr) -> bool:
    keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
    return any(
        k.arg == "device" and not (isinstance(k.value, ast.Constant) and not k.value.value) for k in keywords
    )


def placed(node: _Node, at: ast.AST) -> _Node:
    """A new node, and all in it, at another's place."""
    return ast.fix_missing_locations(ast.copy_location(node, at))
