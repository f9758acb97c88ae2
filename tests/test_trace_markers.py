"""Stage markers in Numba kernels' sources: taken out, or turned into records."""

from __future__ import annotations

import ast
import types
from contextlib import contextmanager
from textwrap import dedent, indent

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import warpdeck.kernels.stages as stages
import warpdeck.telemetry.trace as package
from warpdeck.telemetry.trace import layout
from warpdeck.telemetry.trace.markers import PARAMETERS, MarkerError, instrument, strip
from warpdeck.telemetry.trace.unmarked import strip_text

IMPORT = "from warpdeck.kernels.stages import done, issue, mark, pin, stage, start, stop, value\n"
SECOND = {
    "start": layout.SUB_START,
    "stop": layout.SUB_STOP,
    "issue": layout.SUB_ISSUE,
    "done": layout.SUB_DONE,
}
DESCRIPTOR = (4096, 17, 33, 65)


def run(tree: ast.Module, **names):
    """Run a module; what it defines."""
    module = dict(names)
    exec(compile(tree, "k.py", "exec", dont_inherit=True), module)
    return module


def off(text: str) -> ast.Module:
    tree = ast.parse(text, "k.py")
    strip(tree, "k.py")
    return tree


def on(text: str) -> tuple[ast.Module, tuple[str, ...]]:
    tree = ast.parse(text, "k.py")
    return tree, instrument(tree, "k.py")


def test_behind_a_barrier_a_marked_function_waits_for_it() -> None:
    text = IMPORT + dedent(
        """
        def kernel(x):
            with stage("wait"):
                cuda.syncthreads()
            syncthreads()

        def helper(x):
            cuda.syncthreads()
        """
    )
    lines = [line.strip() for line in ast.unparse(on(text)[0]).splitlines()]
    behind = [after for line, after in zip(lines, [*lines[1:], ""], strict=True) if "syncthreads" in line]
    assert behind == ["_wd_device.settle()"] * 2 + [""]
    assert "settle" not in ast.unparse(off(text))


# -- any program: Python's own `with` is the oracle -------------------------------------------------


class Log:
    """What the markers say, in order."""

    def __init__(self) -> None:
        self.events: list[tuple] = []

    def markers(self) -> dict[str, object]:
        """Markers that write down that they were reached."""
        events = self.events

        @contextmanager
        def stage(name, payload=0):
            events.append(("begin", name, payload & layout.PAYLOAD_MASK))
            try:
                yield
            finally:
                events.append(("end", name, 0))

        def event(kind, mask):
            return lambda name, second=0: events.append((kind, name, second & mask))

        return {
            "stage": stage,
            "mark": event("mark", layout.PAYLOAD_MASK),
            "value": lambda name, number: events.append(("value", name, number)),
            **{name: event(name, layout.ARGUMENT_MASK) for name in SECOND},
        }

    def device(self, names: tuple[str, ...]) -> types.SimpleNamespace:
        """A device that writes down the records it is given; its state counts them."""

        def record(at, left, word):
            kind, name, payload = (
                word >> 30,
                word >> layout.PAYLOAD_BITS & layout.MAX_NAMES,
                word & layout.PAYLOAD_MASK,
            )
            label = ("begin", "end", "mark", "")[kind]
            if kind == layout.KIND_EXTENDED:
                label = next(k for k, sub in SECOND.items() if sub == payload >> layout.SUB_SHIFT)
                payload &= layout.ARGUMENT_MASK
            self.events.append((label, names[name - 1], payload))
            return at + 8, left - 1

        def number(at, left, name, given):
            self.events.append(("value", names[name - 1], given))
            return at + 16, left - 2

        def begin(*descriptor):
            assert descriptor == DESCRIPTOR and not self.events
            return 0, 0

        def end(sizes, at, left):
            assert sizes == DESCRIPTOR[1] and at == -8 * left
            self.events.append(("over", -left))

        return types.SimpleNamespace(
            begin=begin,
            end=end,
            record=record,
            record_end=record,
            record_with=lambda at, left, word, payload, mask: record(at, left, word | (payload & mask)),
            value=number,
            pin=lambda number: number,
        )


NAMES = st.sampled_from(["load", "wait", "compute", "with space", "ünï"])
SMALL = st.integers(0, 3)


@st.composite
def block(draw, depth: int, loop: bool) -> str:
    lines = [draw(statement(depth, loop)) for _ in range(draw(st.integers(1, 3)))]
    return "\n".join(lines)


@st.composite
def statement(draw, depth: int, loop: bool) -> str:
    kinds = ["work", "mark", "value", "start", "stop", "issue", "done", "pin"]
    kinds += ["return"] + ["break", "continue"] * loop
    kinds += ["stage", "stages", "for", "if", "while"] * 2 if depth else []
    kind = draw(st.sampled_from(kinds))
    name, other = repr(draw(NAMES)), repr(draw(NAMES))
    inner = indent(draw(block(depth - 1, loop or kind in ("for", "while"))), "    ") if depth else ""
    second = draw(st.sampled_from(["", ", x", ", 7 - x", ", 1 << 19"]))
    if kind == "work":
        return f"x += 1; out.append(x * {draw(SMALL)})"
    if kind in ("mark", *SECOND):
        return f"{kind}({name}{second})"
    if kind == "value":
        return f"value({name}, x + 1)"
    if kind == "pin":
        return draw(st.sampled_from(["x = pin(x)", "x, z = pin(x, z)", "grid[0] = pin(grid[0])"]))
    if kind == "stage":
        return f"with stage({name}{second}):\n{inner}"
    if kind == "stages":
        return f"with stage({name}{second}), stage(name={other}, payload=y):\n{inner}"
    if kind == "for":
        rest = (
            f"\nelse:\n{inner.replace('break', 'pass').replace('continue', 'pass')}"
            if draw(st.booleans())
            else ""
        )
        return f"for _ in range({draw(SMALL)}):\n{inner}" + (rest if not loop else "")
    if kind == "while":
        return f"while x < {draw(SMALL)}:\n    x += 1\n{inner}"
    if kind == "if":
        return f"if (x + y) % 2:\n{inner}\nelse:\n{indent(draw(block(depth - 1, loop)), '    ')}"
    return kind


@st.composite
def programs(draw) -> str:
    body = draw(block(3, False))
    head = "def make(y):\n    def kernel(x, out, grid):\n        mark('first')\n        z = y\n"
    return f"{IMPORT}{head}{indent(body, ' ' * 8)}\n    return kernel\n"


@settings(max_examples=80, deadline=None)
@given(programs(), st.integers(0, 3), st.integers(0, 3))
def test_records_are_what_the_markers_say_where_python_reaches_them(text, x, y):
    plain, traced, work, traced_work = Log(), Log(), [], []
    with pytest.MonkeyPatch.context() as patch:
        for name, marker in plain.markers().items():
            patch.setattr(stages, name, marker)
        run(ast.parse(text))["make"](y)(x, work, [0])
    tree, names = on(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(package, "numba_device", traced.device(names), raising=False)
        run(tree)["make"](y)(x, traced_work, [0], *DESCRIPTOR)
    records = sum(2 if kind == "value" else 1 for kind, *_ in plain.events)
    assert traced.events == [*plain.events, ("over", records)]
    assert traced_work == work


@settings(max_examples=50, deadline=None)
@given(programs(), st.integers(0, 3), st.integers(0, 3))
def test_a_stripped_program_does_its_work_and_no_marker_is_left(text, x, y):
    tree, work, stripped_work = off(text), [], []
    run(ast.parse(text))["make"](y)(x, work, [0])  # the markers themselves do nothing
    run(tree)["make"](y)(x, stripped_work, [0])
    assert stripped_work == work
    called = {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    assert called <= {"range"}
    lines = {node.lineno for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)}
    assert {node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt)} <= lines


@settings(max_examples=50, deadline=None)
@given(programs())
def test_text_without_markers_is_the_stripped_program(text):
    without = strip_text(text, "k.py")
    tree = off(text)
    tree.body = [node for node in tree.body if not isinstance(node, ast.ImportFrom)]
    assert "stage" not in without

    def shape(module: ast.Module) -> str:
        class Plain(
            ast.NodeTransformer
        ):  # a `pass` beside other statements may stay in one and not the other
            def generic_visit(self, node):
                super().generic_visit(node)
                for name in ("body", "orelse"):
                    part = getattr(node, name, None)
                    if isinstance(part, list):
                        setattr(node, name, [s for s in part if not isinstance(s, ast.Pass)])
                return node

        return ast.dump(Plain().visit(module))

    assert shape(ast.parse(without)) == shape(tree)


# -- forms ------------------------------------------------------------------------------------------

KERNEL = """
from warpdeck.kernels.stages import stage as s, mark

def make(tile):
    def helper(x):
        return x

    def kernel(x):
        \"\"\"Text.\"\"\"
        for i in range(tile):
            with s("load", i):
                x[i] = 1  # kept
            # a comment
        if x[0]:
            mark("odd")
            return
        for j in range(tile):
            mark("loop", j)
    return kernel
"""


@pytest.mark.parametrize(
    ("imports", "call"),
    [
        ("from warpdeck.kernels.stages import mark", "mark"),
        ("from warpdeck.kernels.stages import mark as m", "m"),
        ("from warpdeck.kernels.stages import *", "mark"),
        ("from warpdeck.kernels import stages", "stages.mark"),
        ("from warpdeck.kernels import stages as s", "s.mark"),
        ("import warpdeck.kernels.stages as s", "s.mark"),
        ("import warpdeck.kernels.stages", "warpdeck.kernels.stages.mark"),
    ],
)
def test_markers_are_found_however_they_are_imported(imports, call):
    text = f"{imports}\ndef kernel(x):\n    x[0] = 1\n    {call}('here')\n"
    tree, names = on(text)
    assert names == ("here",)
    assert f"def kernel(x, {', '.join(PARAMETERS)}):" in ast.unparse(tree)
    assert "here" not in ast.unparse(off(text))


def test_other_things_of_the_same_name_are_left_alone():
    body = "    mark('here')\n    value = 1\n    with stage('x'):\n        pass\n"
    text = f"from elsewhere import mark\ndef kernel(x):\n{body}"
    tree, names = on(text)
    assert not names and ast.dump(tree) == ast.dump(ast.parse(text)) == ast.dump(off(text))


def test_every_statement_keeps_its_line_and_marked_loops_go():
    tree = off(KERNEL)
    lines = KERNEL.splitlines()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.If | ast.Return):
            assert ast.unparse(node).splitlines()[0].strip() in lines[node.lineno - 1].strip()
    kernel = next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "kernel")
    assert [type(s).__name__ for s in kernel.body] == ["Expr", "For", "If"]


def test_a_marked_loop_stays_if_its_variable_is_read_elsewhere():
    text = f"{IMPORT}def kernel(x):\n    for i in range(4):\n        mark('a', i)\n    x[0] = i\n"
    assert run(off(text))["kernel"](found := [0]) is None and found == [3]


def test_text_for_people_keeps_comments_and_layout():
    assert strip_text(KERNEL, "k.py") == dedent(
        """
        def make(tile):
            def helper(x):
                return x

            def kernel(x):
                \"\"\"Text.\"\"\"
                for i in range(tile):
                    x[i] = 1  # kept
                    # a comment
                if x[0]:
                    return
            return kernel
        """
    ).replace("\ndef make", "\n\ndef make")


def test_text_of_markers_in_odd_places():
    text = dedent(
        """\
        from warpdeck.kernels.stages import mark, stage; import math
        def kernel(x):
            with (stage("a"),
                  stage("b")
            ):
                # first
                x[0] = '''
              fixed'''
            with stage("c"): x[1] = 2
            x[2] = 3; mark("ü"); x[3] = 4
            if x[0]:
                mark("d")
        """
    )
    assert strip_text(text, "k.py") == dedent(
        """\
        pass; import math
        def kernel(x):
            # first
            x[0] = '''
              fixed'''
            x[1] = 2
            x[2] = 3; pass; x[3] = 4
            if x[0]:
                pass
        """
    )


@pytest.mark.parametrize(
    ("body", "line", "message"),
    [
        ("mark(name)", 3, "mark(): the name must be a string literal"),
        ("mark('')", 3, "'' is no name"),
        ("mark('a', 1, 2)", 3, "mark() takes a name and a payload"),
        ("mark()", 3, "mark() takes a name"),
        ("mark('a', token=1)", 3, "mark() takes a name and a payload"),
        ("start('a', payload=1)", 3, "start() takes a name and a token"),
        ("value('a')", 3, "value() needs the number"),
        ("x = mark('a')", 3, "mark() is a statement of its own"),
        ("x = 1 + (stage('a') is None)", 3, "stage() is a statement of its own"),
        ("stage('a')", 3, 'write `with stage("name"):`'),
        ("with stage('a') as x:\n        pass", 3, "nothing to name"),
        ("with stage('a'), open('b'):\n        pass", 3, "can't share"),
        ("pin(x)", 3, "a = pin(a)"),
        ("y = pin(x)", 3, "assigned to what it is given"),
        ("x, y = pin(y, x)", 3, "assigned to what it is given"),
        ("x = z = pin(x)", 3, "assigned to what it is given"),
        ("x = pin(x) + 1", 3, "pin() is a statement of its own"),
        ("f = lambda: mark('a')", 3, "mark() in a lambda"),
        ("f = [mark('a') for _ in x]", 3, "mark() in a comprehension"),
        ("f = {1: mark('a') for _ in x}", 3, "mark() in a comprehension"),
        ("value = 3", 3, "'value' is a marker here"),
        ("for stop in x:\n        pass", 3, "'stop' is a marker here"),
        ("def mark(): pass", 3, "'mark' is a marker here"),
        ("mark('a')\n    def inner(stage): pass", 4, "'stage' is a marker here"),
        ("mark('a')\n    def inner(z):\n        mark('b')", 5, "function inside a kernel"),
        ("class C:\n        mark('a')", 4, "a marker in a class"),
        ("f(mark)", 3, "mark() is a statement of its own"),
    ],
)
def test_what_cant_be_a_marker_is_refused_with_its_line(body, line, message):
    text = f"{IMPORT}def kernel(x):\n    {body}\n"
    for rewrite in (strip, instrument, lambda tree, file: strip_text(text, file)):
        with pytest.raises(MarkerError) as error:
            rewrite(ast.parse(text), "folder/k.py")
        assert str(error.value).startswith(f"folder/k.py:{line}: ")
        assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("mark('a')", 2, "outside of any function"),
        ("@cuda.jit(device=True)\ndef f(x):\n    mark('a')", 4, "f is a device function"),
        ("def kernel(x, *rest):\n    mark('a')", 2, "must be plain ones"),
        ("def kernel(x=1):\n    mark('a')", 2, "must be plain ones"),
        ("async def kernel(x):\n    mark('a')", 3, "outside of any function"),
    ],
)
def test_markers_stand_in_plain_kernels(text, line, message):
    with pytest.raises(MarkerError) as error:
        on(IMPORT + text)
    assert str(error.value).startswith(f"k.py:{line}: ") and message in str(error.value)


def test_a_thousand_names_and_no_more():
    calls = "".join(f"    mark('n{i}')\n" for i in range(layout.MAX_NAMES))
    text = f"{IMPORT}def kernel(x):\n{calls}"
    assert len(on(text)[1]) == layout.MAX_NAMES
    with pytest.raises(MarkerError, match="more than 1023 names"):
        on(f"{text}    mark('one more')\n")


def test_unmarked_kernels_of_a_marked_module_are_left_alone():
    text = f"{IMPORT}def other(x):\n    return x\ndef kernel(x):\n    mark('a')\n"
    tree, _ = on(text)
    assert ast.unparse(tree.body[-2]) == "def other(x):\n    return x"
