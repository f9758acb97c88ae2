"""Reads `workload.toml` (design: short form for one variant, full form for several) into a Workload.

Full form, beside `[workload]`, `[[argument]]` and `[[case]]`:

    [sizes]                      # case parameters over `size`; left out: every parameter = size
    m = "size"
    [vendor]
    name = "cuBLAS SGEMM"
    [floor]                      # compulsory work, expressions over case parameters
    bytes = "4*n*n*3"
    flops = "2*n**3"
    [[variant]]
    name = "tiled"               # default: the file's stem
    file = "kernel.py"           # default: kernel.py or kernel.cu, whichever exists
    language = "numba"           # default: by the file's suffix
    entry = "gemm_tiled"
    ladder = 2                   # optional rung
    tolerance = { product = 2e-6 }
    restrictions = ["TILE <= 64"]
    [variant.knobs]
    TILE = [16, 32]
    [[variant.launch]]           # several make one candidate; with `case`, only for the case of that name
    grid = ["ceil_div(n, TILE)"]
    block = [256]
    [space.full]
    variant = "tiled"
    knobs = { TILE = [16, 32] }  # default: the variant's
    restrictions = []            # added to the variant's
    baseline = { TILE = 16 }     # default: first values
    baseline_space = "classic"   # instead of `baseline`: another space holds it

A `[[case]]` has `name`, `role`, a whole number for every case parameter, and optionally `edge`, `data`
(fills every input of this case, for example "integers") and `exact` (outputs must equal the reference
rounded to the output's type).
"""

from __future__ import annotations

import ast
import hashlib
import re
import tomllib
from pathlib import Path

from ..core.errors import UsageError
from ..core.expr import near
from ..core.model import Trust
from ..core.workload import Workload
from ..telemetry.parsing import parse_module
from ..telemetry.trace.marking import MODULE
from .schema import parse_workload
from .table import Table

BUNDLED = Path(__file__).parent
_PACKAGE = BUNDLED.parent
MAX_SOURCE_BYTES = 4 << 20  # of one file
FOREIGN = "FOREIGN"  # a file that marks a folder whose code came from elsewhere: it runs only in a sandbox
_INCLUDE = re.compile(rb'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def list_workloads() -> list[str]:
    """Names of the bundled workloads."""
    return sorted(p.parent.name for p in BUNDLED.glob("*/workload.toml"))


def load_workload(name_or_folder: str | Path) -> Workload:
    """Load a bundled workload by name, or a user's from its folder (or its `workload.toml`).

    A path needs a separator or must exist; anything else is a name.

    Raises:
        UsageError: unknown name, unreadable or invalid file; says the file, key, fault and remedy.
    """
    text = str(name_or_folder)
    if isinstance(name_or_folder, str) and text in list_workloads():
        return _load(BUNDLED / text, Trust.BUNDLED)
    folder = Path(text).expanduser()
    if folder.name == "workload.toml":
        folder = folder.parent
    if folder.is_dir():
        folder = folder.resolve()
        trust = Trust.BUNDLED if folder.parent == BUNDLED.resolve() else Trust.OWN
        return _load(folder, Trust.REMOTE if is_foreign(folder) else trust)
    if folder.is_file():
        raise UsageError(f"{text}: a file; a workload is a folder with workload.toml in it")
    if "/" in text or isinstance(name_or_folder, Path):
        raise UsageError(f"{text}: no such folder; a workload is a folder with workload.toml in it")
    raise UsageError(f"unknown workload {text!r}; {near(text, list_workloads())}")


def is_foreign(folder: Path) -> bool:
    """Whether the folder, or one around it, is marked as having come from elsewhere."""
    return any((around / FOREIGN).exists() for around in (folder, *folder.parents))


def may_name(origin: Path, name: str) -> str:
    """A workload's name or folder as a file or session at `origin` has it, if that may be loaded: what came
    from elsewhere is to open nothing on this machine but a bundled workload and what came with it.

    Raises UsageError: it names another.
    """
    if is_foreign(origin) and name not in list_workloads() and not _came_too(name):
        raise UsageError(f"{origin.name} was imported: its workload {name} is not looked for on this machine")
    return name


def _came_too(name: str) -> bool:
    try:
        return not name.startswith("~") and is_foreign(Path(name).resolve())
    except (OSError, ValueError, RuntimeError):  # no path at all, or links in a circle
        return False


def _load(folder: Path, trust: Trust) -> Workload:
    path = folder / "workload.toml"
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file; a workload's folder needs one") from None
    except tomllib.TOMLDecodeError as e:
        raise UsageError(f"{path}: not valid TOML: {e}") from None
    except RecursionError:
        raise UsageError(f"{path}: not valid TOML: nested too deeply") from None
    except (OSError, UnicodeDecodeError) as e:
        raise UsageError(f"{path}: can't be read: {getattr(e, 'strerror', None) or e}") from None
    return parse_workload(Table(data, path), folder, trust, source_hash)


def source_hash(file: Path) -> str:
    """Sixteen hex digits over a source file and every sibling file that it includes or imports.

    Raises:
        UsageError: a file can't be read, or a Python file can't be parsed.
    """
    found: dict[Path, bytes] = {}
    todo = [file.resolve()]
    while todo:
        path = todo.pop()
        if path in found:
            continue
        try:
            with path.open("rb") as source:
                found[path] = source.read(MAX_SOURCE_BYTES + 1)
        except OSError as e:
            raise UsageError(f"{path}: can't read the source: {e.strerror}") from None
        if len(found[path]) > MAX_SOURCE_BYTES:
            raise UsageError(f"{path}: larger than {MAX_SOURCE_BYTES >> 20} MiB; that is no kernel's source")
        todo += _siblings(path, found[path])
    digest = hashlib.sha256()
    for path in sorted(found, key=lambda p: (p != file.resolve(), p.name)):
        digest.update(len(found[path]).to_bytes(8, "little") + found[path])
    return digest.hexdigest()[:16]


def lone_hash(file: Path) -> str:
    """Sixteen hex digits over one file, whatever it includes: of code that may be anyone's.

    Raises UsageError if it can't be read.
    """
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    except OSError as e:
        raise UsageError(f"{file}: can't read the source: {e.strerror}") from None


def _siblings(path: Path, text: bytes) -> list[Path]:
    if path.suffix == ".py":
        candidates = _imported(path, text)
    else:
        candidates = [path.parent / m.decode(errors="replace") for m in _INCLUDE.findall(text)]
    return [p.resolve() for p in candidates if p.is_file()]


def _imported(path: Path, text: bytes) -> list[Path]:
    try:
        tree = parse_module(text, str(path))
    except (SyntaxError, ValueError) as e:
        raise UsageError(f"{path}: {e}") from None
    files = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            files += [path.parent / f"{alias.name.replace('.', '/')}.py" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = path.parents[max(node.level - 1, 0)]
            module = (node.module or "").replace(".", "/")
            if not node.level and node.module == MODULE:
                continue  # its markers are taken out before anything runs
            if not node.level and module.startswith("warpdeck/"):  # the shared intrinsics
                base, module = _PACKAGE, module.removeprefix("warpdeck/")
            if module:
                files.append(base / f"{module}.py")
            files += [base / module / f"{alias.name}.py" for alias in node.names]
    return files
