"""A CUDA C++ variant as one .cu file: every chosen configuration in a namespace, and a host function that
launches the one for a size."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.errors import UsageError
from ..core.expr import FUNCTIONS, compile_expr
from ..core.model import Config, Trust
from ..core.workload import LaunchSpec, Variant, Workload
from ..kernels.bare import fixed, head_line
from ..kernels.signature import CTYPES
from ..telemetry.parsing import parse_expression
from .choices import Choice

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>).*$', re.MULTILINE)
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
_MARKERS = Path(__file__).parents[1] / "telemetry/trace/include/warpdeck/trace.cuh"
_PRAGMA_ONCE = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+once[ \t]*$", re.MULTILINE)
_HOST_FUNCTIONS = """\
static long long ceil_div(long long a, long long b) { return (a + b - 1) / b; }
static long long round_up(long long a, long long b) { return ceil_div(a, b) * b; }
static long long ilog2(long long a) { long long n = 0; while (a >>= 1) ++n; return n; }
static bool is_pow2(long long a) { return a > 0 && (a & (a - 1)) == 0; }"""


def generate(
    workload: Workload,
    variant: Variant,
    choices: Sequence[Choice],
    about: Sequence[str],
    *,
    folder: str | None = None,
) -> str:
    """The file's text. `about`: lines for its head, the title first; `folder`: of a workload without a name.

    Raises UsageError for launch expressions that have no C++ form.
    """
    headers: dict[str, None] = {}
    source = _whole(variant, headers)
    configs: list[Config] = []
    plans: list[Plan] = []
    for choice in choices:
        if choice.config not in configs:
            configs.append(choice.config)
        plan = _plan(variant, choice, configs)
        if plan not in plans:
            plans.append(plan)
    every = [*variant.launches, *(spec for specs in variant.case_launches.values() for spec in specs)]
    entries = list(dict.fromkeys(launch.entry for launch in every))
    head = "\n".join(f"// {line}" for line in about)
    head += "\n" + _machine_line(workload, variant, choices, configs, plans, folder)
    use = "//\n// nvcc -O3 -arch=native -c best.cu; call the function at the end, with workspaces zeroed."
    parts = [
        f"{head}\n{use}",
        "\n".join(f"#include <{name}>" for name in headers),
        *(_namespace(source, entries, number, configs) for number in range(len(configs))),
        _host(workload, variant, choices, configs, plans),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


@dataclass(frozen=True)
class Plan:
    """A configuration and the launches of it, as some case takes them."""

    config: Config
    number: int  # of the configuration
    launches: tuple[LaunchSpec, ...]


def _plan(variant: Variant, choice: Choice, configs: Sequence[Config]) -> Plan:
    launches = variant.case_launches.get(choice.case, variant.launches)
    return Plan(choice.config, configs.index(choice.config), launches)


def _machine_line(
    workload: Workload,
    variant: Variant,
    choices: Sequence[Choice],
    configs: Sequence[Config],
    plans: Sequence[Plan],
    folder: str | None,
) -> str:
    """What `warpdeck check best.cu` and `tune --from best.cu` read. The first plan is every other case's."""
    cases = {choice.case: plans.index(_plan(variant, choice, configs)) for choice in choices}
    rows = [
        [fixed(spec, plan.config, _symbol(spec.entry, plan.number, configs)) for spec in plan.launches]
        for plan in plans
    ]
    more: dict[str, Any] = {"variant": variant.name, "knobs": dict(choices[0].config)}
    if variant.precision:
        more["precision"] = variant.precision
    return head_line(workload, rows, cases, folder, **more)


def baked(variant: Variant, config: Config) -> tuple[str, dict[str | None, list[LaunchSpec]]]:
    """A variant as one text, its knobs fixed, and its launches: for all cases (None), and for single ones.

    The text has the toolkit's headers first, then the knobs as macros, and keeps the kernels' names.
    """
    headers: dict[str, None] = {}
    source = _whole(variant, headers)
    entries = [spec.entry for spec in variant.launches]
    lines = [*(f"#include <{name}>" for name in headers), *_macros(config)]
    text = "\n".join([*lines, _capped(source, entries, config).strip("\n")]) + "\n"
    groups = {None: variant.launches, **variant.case_launches}
    return text, {case: [fixed(spec, config) for spec in specs] for case, specs in groups.items()}


def _macros(config: Config) -> list[str]:
    return [
        f"#define {name} {int(value) if isinstance(value, bool) else value}"
        for name, value in config.items()
        if name != "reg_cap"
    ]


def _capped(source: str, entries: Sequence[str], config: Config) -> str:
    """With the configuration's limit of registers; beside launch bounds the compiler ignores one."""
    cap = int(config.get("reg_cap", 0))
    if cap and "__launch_bounds__" not in source:
        for entry in entries:
            source = re.sub(
                rf"(__global__\s+void\s+)(?={re.escape(entry)}\b)", rf"\1__maxnreg__({cap}) ", source
            )
    return source


def _whole(variant: Variant, headers: dict[str, None]) -> str:
    """The variant's text with its own headers in place. Of code of others nothing else is read."""
    own = variant.trust not in (Trust.GENERATED, Trust.REMOTE)
    return _inlined(variant.file.resolve(), headers, [], own=own)


def _inlined(path: Path, headers: dict[str, None], inside: Sequence[Path], *, own: bool = True) -> str:
    """The file with its own folder's headers in place, and the toolkit's collected."""
    text = path.read_text(encoding="utf-8")

    def replace(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name == "warpdeck/trace.cuh":
            return _no_markers()
        sibling = (path.parent / name).resolve()
        if own and sibling.is_file():
            return "" if sibling in inside else _inlined(sibling, headers, [*inside, path])
        headers[name] = None
        return ""

    return _INCLUDE.sub(replace, _PRAGMA_ONCE.sub("", text))


def _no_markers() -> str:
    """The stage markers' macros as they are without tracing: empty."""
    text = _MARKERS.read_text(encoding="utf-8")
    off = text[text.index("#ifndef WARPDECK_TRACE\n") : text.index("#else  // WARPDECK_TRACE")]
    return "\n".join(line for line in off.splitlines() if line.startswith("#define"))


def _symbol(entry: str, number: int, configs: Sequence[Config]) -> str:
    """A kernel's name in the file: one a configuration, where there are several."""
    return entry if len(configs) == 1 else f"{entry}_config{number}"


def _namespace(source: str, entries: Sequence[str], number: int, configs: Sequence[Config]) -> str:
    config = configs[number]
    source = _capped(source, entries, config)
    for entry in entries:  # in the text, not by a macro: readers of sources look for kernels by their names
        source = re.sub(rf"\b{re.escape(entry)}\b", _symbol(entry, number, configs), source)
    macros = [name for name in config if name != "reg_cap"]
    own = list(dict.fromkeys(_DEFINE.findall(source)))
    lines = [f"namespace config{number} {{", *_macros(config), source.strip("\n")]
    lines += [f"#undef {name}" for name in [*own, *macros]]
    lines.append(f"}}  // namespace config{number}")
    lines += [f"using config{number}::{_symbol(entry, number, configs)};" for entry in entries]
    return "\n".join(lines)


def _host(
    workload: Workload,
    variant: Variant,
    choices: Sequence[Choice],
    configs: Sequence[Config],
    plans: Sequence[Plan],
) -> str:
    name = re.sub(r"\W", "_", workload.name)
    parameters = [f"{_c_type(a.dtype)}* {a.name}" for a in workload.arguments if a.kind != "scalar"]
    sizes = [f"long long {p}_" for p in workload.params]
    rows = [
        [*(str(c.params[p]) for p in workload.params), str(plans.index(_plan(variant, c, configs)))]
        for c in choices
    ]
    table = ", ".join("{" + ", ".join(row) + "}" for row in rows)
    columns = len(workload.params) + 1
    distance = " + ".join(
        f"std::fabs(std::log(double({p}_) / double(c[{i}])))" for i, p in enumerate(workload.params)
    )
    lines = [
        "#ifndef __CUDACC_RTC__  // nvcc knows the runtime and the functions of <cmath> without an include",
        "",
        _HOST_FUNCTIONS,
        "",
        f"// {workload.description or workload.name}. Device pointers in the kernel's order, then the sizes.",
        f"cudaError_t {name}_best({', '.join([*parameters, *sizes])}, cudaStream_t stream) {{",
        f"    static const long long cases[][{columns}] = {{{table}}};  // sizes, what to launch",
        "    int best = 0;",
        "    double nearest = 1e300;",
        "    for (const auto& c : cases) {",
        f"        double distance = {distance or '0.0'};",
        f"        if (distance < nearest) {{ nearest = distance; best = int(c[{columns - 1}]); }}",
        "    }",
        "    cudaError_t status = cudaSuccess;",
    ]
    taken = [a for a in workload.arguments if a.taken_by(variant.language)]
    scalars = {a.name: a for a in taken if a.kind == "scalar"}
    for index, plan in enumerate(plans):
        config, number = plan.config, plan.number
        lines.append(f"    if (best == {index}) {{")
        for a in scalars.values():
            value = _translate(a.value or "0", workload.params, {})
            lines.append(f"        {_c_type(a.dtype)} {a.name} = ({_c_type(a.dtype)})({value});")
        lines.append(f"        void* arguments[] = {{{', '.join('&' + a.name for a in taken)}}};")
        for spec in plan.launches:
            grid = ", ".join(f"unsigned({_translate(t, workload.params, config)})" for t in spec.grid)
            block = ", ".join(f"unsigned({_translate(t, workload.params, config)})" for t in spec.block)
            shared = _translate(spec.shared, workload.params, config)
            kernel = f"(const void*)config{number}::{_symbol(spec.entry, number, configs)}"
            lines += [
                f"        size_t shared_{spec.entry} = size_t({shared});",
                f"        if (shared_{spec.entry} > 48 * 1024)",
                f"            cudaFuncSetAttribute({kernel}, cudaFuncAttributeMaxDynamicSharedMemorySize, "
                f"int(shared_{spec.entry}));",
                f"        status = cudaLaunchKernel({kernel}, dim3({grid}), dim3({block}), arguments, "
                f"shared_{spec.entry}, stream);",
                "        if (status != cudaSuccess) return status;",
            ]
        lines.append("    }")
    lines += ["    return status;", "}", "#endif"]
    return "\n".join(lines)


def _c_type(dtype: str) -> str:
    try:
        return CTYPES[dtype]
    except KeyError:
        raise UsageError(f"a .cu file can't be made for arguments of type {dtype}") from None


def _translate(text: str, params: Sequence[str], config: Mapping[str, Any]) -> str:
    """An expression over parameters and knobs in C++; knobs become numbers. Raises UsageError."""
    return _c(parse_expression(text.strip()), text, params, config)


_BINARY = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "/", ast.Mod: "%"}
_COMPARE = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}


def _c(node: ast.expr, text: str, params: Sequence[str], config: Mapping[str, Any]) -> str:
    def sub(part: ast.expr) -> str:
        return _c(part, text, params, config)

    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} - set(FUNCTIONS)
    if not names & set(params):  # only knobs and numbers: its value
        value = compile_expr(ast.unparse(node)).evaluate(config)
        if isinstance(value, str):
            raise UsageError(f"launch expression {text!r} has no C++ form: it gives a text")
        return str(int(value) if isinstance(value, bool) else value)
    match node:
        case ast.Name(id=name):
            return f"{name}_"
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return f"({sub(left)} {_BINARY[type(op)]} {sub(right)})"
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return f"(double({sub(left)}) / double({sub(right)}))"
        case ast.UnaryOp(op=op, operand=operand):
            sign = {ast.USub: "-", ast.UAdd: "+", ast.Not: "!"}[type(op)]
            return f"{sign}({sub(operand)})"
        case ast.BoolOp(op=op, values=values):
            return "(" + (" && " if isinstance(op, ast.And) else " || ").join(map(sub, values)) + ")"
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return f"(({sub(test)}) ? (long long)({sub(body)}) : (long long)({sub(orelse)}))"
        case ast.Compare(left=left, ops=ops, comparators=rights) if all(type(op) in _COMPARE for op in ops):
            sides = [sub(side) for side in (left, *rights)]
            pairs = zip(sides, ops, sides[1:], strict=False)
            return "(" + " && ".join(f"{a} {_COMPARE[type(op)]} {b}" for a, op, b in pairs) + ")"
        case ast.Call(func=ast.Name(id="min" | "max" as name), args=[first, *rest]):
            result = sub(first)
            for other in rest:
                a, b = f"(long long)({result})", f"(long long)({sub(other)})"
                result = f"({a} {'<' if name == 'min' else '>'} {b} ? {a} : {b})"
            return result
        case ast.Call(func=ast.Name(id="abs"), args=[only]):
            return f"std::llabs({sub(only)})"
        case ast.Call(func=ast.Name(id=name), args=args):
            return f"{name}({', '.join(map(sub, args))})"
        case _:
            raise UsageError(f"launch expression {text!r} has no C++ form: {ast.unparse(node)}")
