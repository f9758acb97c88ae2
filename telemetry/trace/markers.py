"""Takes the stage markers of a Numba kernel's module out, or turns them into records.

Both work on the module's syntax tree before it runs, and keep every statement's line. Standard library
only. See `warpdeck.kernels.stages` for the markers themselves.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from . import layout
from .marking import Call, Function, MarkerError, Rewriter, dotted, placed

__all__ = ["PARAMETERS", "MarkerError", "instrument", "strip"]

# The last ones of a traced kernel: the bytes of a `layout.DESCRIPTOR` as uint64.
PARAMETERS = ("_wd_rows", "_wd_sizes", "_wd_ctas", "_wd_chosen")
_DEVICE, _NEXT, _LEFT = "_wd_device", "_wd_next", "_wd_left"
_SUB_KINDS = {
    "start": layout.SUB_START,
    "stop": layout.SUB_STOP,
    "issue": layout.SUB_ISSUE,
    "done": layout.SUB_DONE,
}


def strip(tree: ast.Module, file: str) -> bool:
    """Take the markers out of a module's tree, in place. Returns whether it imports them at all.

    Raises MarkerError for what isn't a marker's form.
    """
    rewriter = Stripper(tree, file)
    if rewriter.known:
        rewriter.visit(tree)
    return bool(rewriter.known)


def instrument(tree: ast.Module, file: str) -> tuple[str, ...]:
    """Turn the markers of a module's tree into records, in place.

    Every function with markers gets more parameters, `PARAMETERS`.

    Returns:
        The stages' names; the first has id 1. Empty: there are no markers, and the tree is as it was.

    Raises:
        MarkerError: what isn't a marker's form, or too many names.
    """
    rewriter = _Tracer(tree, file)
    if rewriter.known:
        rewriter.visit(tree)
    if rewriter.names:
        _import_device(tree)
    return tuple(rewriter.names)


def _import_device(tree: ast.Module) -> None:
    package = __name__.rpartition(".")[0]
    node = ast.ImportFrom(package, [ast.alias("numba_device", _DEVICE)], 0)
    at = 0
    while at < len(tree.body) and (_is_docstring(tree.body[at]) or _is_future(tree.body[at])):
        at += 1
    tree.body.insert(at, placed(node, tree.body[max(at - 1, 0)]))


# -- off --------------------------------------------------------------------------------------------


class Stripper(Rewriter):
    def ranged(self, node: ast.With, stages: Sequence[Call]) -> list[ast.stmt]:
        self._block(node)
        return [s for s in node.body if not isinstance(s, ast.Pass)]

    def event(self, node: ast.Expr, marker: str, call: Call) -> list[ast.stmt]:
        return []

    def pinned(self, node: ast.Assign, places: Sequence[ast.expr]) -> list[ast.stmt]:
        return []

    def visit_For(self, node: ast.For) -> Any:
        gone = self._functions and self.only_markers(node, self._functions[-1].node)
        self.generic_visit(node)
        return [] if gone else node

    def only_markers(self, node: ast.For, function: ast.AST) -> bool:
        """Whether a loop is there for its markers alone, and nothing else reads its variable."""
        variable, over = node.target, node.iter
        if not isinstance(variable, ast.Name) or not isinstance(over, ast.Call) or node.orelse:
            return False
        only = dotted(over.func) == "range" and all(self.is_marker(s, function) for s in node.body)
        return only and not any(_read_outside(function, variable.id))

    def is_marker(self, node: ast.stmt, function: ast.AST) -> bool:
        """Whether nothing is left of a statement."""
        if isinstance(node, ast.For):
            return self.only_markers(node, function)
        if isinstance(node, ast.With):
            return self.is_stage(node) and all(self.is_marker(s, function) for s in node.body)
        return isinstance(node, ast.Expr | ast.Assign) and self.marker(node.value) is not None

    def is_stage(self, node: ast.With) -> bool:
        """Whether a `with` statement opens stages."""
        return all(self.marker(item.context_expr) == "stage" for item in node.items)


def _read_outside(node: ast.AST, name: str) -> Iterator[ast.Name]:
    """Where a variable is read, except in the bodies of loops over it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Name) and child.id == name and isinstance(child.ctx, ast.Load):
            yield child
        elif isinstance(child, ast.For) and isinstance(child.target, ast.Name) and child.target.id == name:
            yield from _read_outside(ast.Module([ast.Expr(child.iter), *child.orelse], []), name)
        else:
            yield from _read_outside(child, name)


# -- on ---------------------------------------------------------------------------------------------


class _Tracer(Rewriter):
    def ranged(self, node: ast.With, stages: Sequence[Call]) -> list[ast.stmt]:
        open_stages = self._functions[-1].open
        begins = [
            self._record(node, layout.word(layout.KIND_BEGIN, s.id), s.second, layout.PAYLOAD_MASK)
            for s in stages
        ]
        open_stages += [stage.id for stage in stages]
        self._block(node)
        del open_stages[len(open_stages) - len(stages) :]
        last = node.body[-1]
        if isinstance(last, ast.Return | ast.Break | ast.Continue):
            return [*begins, *node.body]  # it closed them itself
        return [*begins, *node.body, *(self._end(stage.id, last) for stage in reversed(stages))]

    def event(self, node: ast.Expr, marker: str, call: Call) -> list[ast.stmt]:
        if marker == "mark":
            return [
                self._record(node, layout.word(layout.KIND_MARK, call.id), call.second, layout.PAYLOAD_MASK)
            ]
        if marker == "value":
            assert call.second is not None
            return [self._advance(node, "value", ast.Constant(call.id), call.second)]
        word = layout.word(layout.KIND_EXTENDED, call.id, _SUB_KINDS[marker] << layout.SUB_SHIFT)
        return [self._record(node, word, call.second, layout.ARGUMENT_MASK)]

    def visit_Expr(self, node: ast.Expr) -> Any:
        """With a wait behind each barrier, so that a marker behind it doesn't read the clock too early."""
        made = super().visit_Expr(node)
        barrier = (isinstance(node.value, ast.Call) and dotted(node.value.func)) or ""
        if barrier.rpartition(".")[2] == "syncthreads" and self._functions and self._functions[-1].marked:
            return [node, placed(ast.Expr(_device_call("settle")), node)]
        return made

    def pinned(self, node: ast.Assign, places: Sequence[ast.expr]) -> list[ast.stmt]:
        target = node.targets[0]
        targets = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
        return [
            placed(ast.Assign([to], _device_call("pin", given)), node)
            for to, given in zip(targets, places, strict=True)
        ]

    def function(self, node: ast.FunctionDef, function: Function) -> None:
        at = 1 if _is_docstring(node.body[0]) else 0
        given = [ast.Name(name, ast.Load()) for name in PARAMETERS]
        begin = ast.Assign([_state(ast.Store())], _device_call("begin", *given))
        node.body.insert(at, placed(begin, node.body[at]))
        if not isinstance(node.body[-1], ast.Return):
            node.body.append(self._finish(node.body[-1]))
        node.args.args += [placed(ast.arg(name), node) for name in PARAMETERS]

    def visit_For(self, node: ast.For) -> Any:
        return self._loop(node, node.target, node.iter)

    def visit_While(self, node: ast.While) -> Any:
        return self._loop(node, node.test)

    def _loop(self, node: ast.For | ast.While, *heads: ast.expr) -> ast.stmt:
        for head in heads:
            self.visit(head)
        if self._functions:
            self._functions[-1].open.append(None)
        self._block(node)
        if self._functions:
            self._functions[-1].open.pop()
        self._block(node, "orelse")
        return node

    def visit_Break(self, node: ast.Break) -> Any:
        return [*self._leave(node, loop=True), node]

    def visit_Continue(self, node: ast.Continue) -> Any:
        return [*self._leave(node, loop=True), node]

    def visit_Return(self, node: ast.Return) -> Any:
        self.generic_visit(node)
        if not self._functions[-1].marked:
            return node
        return [*self._leave(node, loop=False), self._finish(node), node]

    def _leave(self, node: ast.stmt, *, loop: bool) -> Iterator[ast.stmt]:
        """Close the stages that a jump leaves, the innermost first."""
        for stage in reversed(self._functions[-1].open):
            if stage is not None:
                yield self._end(stage, node)
            elif loop:
                return

    def _end(self, stage: int, at: ast.stmt) -> ast.stmt:
        return self._advance(at, "record_end", ast.Constant(layout.word(layout.KIND_END, stage)))

    def _record(self, at: ast.stmt, word: int, second: ast.expr | None, mask: int) -> ast.stmt:
        if second is None:
            return self._advance(at, "record", ast.Constant(word))
        return self._advance(at, "record_with", ast.Constant(word), second, ast.Constant(mask))

    def _advance(self, at: ast.stmt, name: str, *arguments: ast.expr) -> ast.stmt:
        """A call that writes records and gives the state after them."""
        call = _device_call(name, *_state(ast.Load()).elts, *arguments)
        return placed(ast.Assign([_state(ast.Store())], call), at)

    def _finish(self, at: ast.stmt) -> ast.stmt:
        sizes = ast.Name(PARAMETERS[1], ast.Load())
        return placed(ast.Expr(_device_call("end", sizes, *_state(ast.Load()).elts)), at)


def _state(context: ast.expr_context) -> ast.Tuple:
    return ast.Tuple([ast.Name(name, context) for name in (_NEXT, _LEFT)], context)


def _device_call(name: str, *arguments: ast.expr) -> ast.Call:
    function = ast.Attribute(ast.Name(_DEVICE, ast.Load()), name, ast.Load())
    return ast.Call(function, list(arguments), [])


def _is_docstring(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"
