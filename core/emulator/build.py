"""Builds a candidate with the system's g++ into a program that runs it, and keeps the results.

Two builds: `checked` (AddressSanitizer and UndefinedBehaviorSanitizer) and `races` (the instrumentation of
-fsanitize=thread, with callbacks of our own). Each has a precompiled header and an object of the runtime,
made once for a compiler and a version of our headers.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from time import perf_counter, time

from .. import sandbox
from ..environment import without_secrets
from ..model import Status, Trust
from ..scratch import make_folder
from ..toolchain.cache import CompileCache, default_folder, pack, unpack
from ..toolchain.sources import TRACE_INCLUDE
from .complaints import complaint
from .errors import CandidateFault, EmulatorError
from .source import Places, Source, wrapped
from .symbols import foreign_names, taken_names

HERE = Path(__file__).resolve().parent
INCLUDE = HERE / "include"
RUNTIME = HERE / "runtime"
COMPILE_S = 60.0  # wall time of one compile
CACHE_BYTES = 256 << 20
_MEMORY = 4 << 30
_PROGRAM = 256 << 20  # bytes, at most
_OLD_S = 7 * 24 * 3600.0
_COMMON = [
    "-std=c++17",
    "-w",
    "-g1",
    "-gdwarf-4",
    "-fno-strict-aliasing",
    "-fno-omit-frame-pointer",
    "-fstack-clash-protection",  # a large frame meets the stack's guard page, not another thread's stack
    "-ffp-contract=off",
    "-fno-exceptions",
    "-fno-diagnostics-show-caret",
    "-fdiagnostics-color=never",
    "-fmessage-length=0",
    "-fmax-errors=20",  # a text may have a million
    "-nostdinc",
    "-nostdinc++",
]
_UNDEFINED = [
    "-fsanitize=undefined",
    "-fno-sanitize=vptr,float-cast-overflow,float-divide-by-zero",
    "-fno-sanitize-recover=all",
    "-fsanitize-recover=signed-integer-overflow,shift",
]


class Build(StrEnum):
    """Which of the two."""

    CHECKED = "checked"
    RACES = "races"

    @property
    def flags(self) -> list[str]:
        """How the kernel is compiled."""
        if self is Build.CHECKED:
            constants = "-fsanitize-sections=.wde_constant*"
            return [*_COMMON, "-O1", "-fsanitize=address", constants, *_UNDEFINED]
        return [*_COMMON, "-O1", "-fsanitize=thread", "-DWDE_RACES"]

    @property
    def runtime_flags(self) -> list[str]:
        """How the runtime is compiled; it isn't checked itself."""
        own = ["-fsanitize=address"] if self is Build.CHECKED else ["-DWDE_RACES"]
        return ["-std=c++17", "-O1", "-g0", "-fno-omit-frame-pointer", "-fno-exceptions", *own]

    @property
    def link_flags(self) -> list[str]:
        """Which sanitizers' runtimes are linked."""
        return ["-no-pie", *(["-fsanitize=address,undefined"] if self is Build.CHECKED else [])]


@dataclass(frozen=True)
class Compiler:
    """The system's compiler."""

    path: str
    version: str
    includes: tuple[str, ...]  # its own header folders; kernels are compiled without them


REMEDY = "install it (Debian, Ubuntu: apt install g++; Fedora: dnf install gcc-c++ libasan libubsan)"


@functools.cache
def find_compiler(path: str = "/usr/local/bin:/usr/bin:/bin") -> Compiler:
    """g++, with its sanitizers, in the folders of `path`. Raises EmulatorError with the remedy."""
    names = ["g++", *(f"g++-{version}" for version in range(18, 9, -1))]
    program = next((found for name in names if (found := shutil.which(name, path=path))), None)
    if program is None:
        raise EmulatorError(f"the cpu device needs a C++ compiler, and there is no g++ here: {REMEDY}")

    def ask(*options: str) -> str:
        try:
            done = subprocess.run(
                [program, *options],
                capture_output=True,
                text=True,
                timeout=30,
                check=True,
                env=without_secrets(),
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise EmulatorError(f"{program} doesn't run: {error}; {REMEDY}") from None
        return (done.stdout or done.stderr).strip()

    version = ask("-dumpfullversion")
    if int(version.split(".")[0]) < 10:
        raise EmulatorError(f"the cpu device needs g++ 10 or newer; {program} is {version}")
    for library in ("libasan.so", "libubsan.so"):
        if not Path(ask(f"-print-file-name={library}")).is_absolute():
            raise EmulatorError(f"the cpu device needs g++'s sanitizers, and {library} is missing: {REMEDY}")
    searched = ask("-x", "c++", "-fsyntax-only", "-v", "/dev/null")
    listed = searched.partition("#include <...> search starts here:")[2].partition("End of search list")[0]
    includes = tuple(line.strip() for line in listed.splitlines() if line.strip())
    return Compiler(program, f"{version} {ask('-dumpmachine')}", includes)


@dataclass(frozen=True)
class Built:
    """A program that serves one candidate, and the object file of its kernels alone. `seconds` were spent, 0
    if it came from the cache."""

    build: Build
    program: bytes
    kernel: bytes
    places: Places
    seconds: float
    key: str


class Builder:
    """Builds candidates, from several threads.

    Args:
        folder: where results are kept; None: `$WARPDECK_EMULATOR_CACHE`, else `emulator` beside the compiled
            GPU code.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.compiler = find_compiler()
        self._folder = _cache_folder() if folder is None else folder
        self._cache = CompileCache(self._folder / "programs", CACHE_BYTES)
        self._bases: dict[Build, Path] = {}
        self._locks = {build: threading.Lock() for build in Build}

    def build(self, source: Source, build: Build, trust: Trust) -> Built:
        """The program for a source.

        Raises:
            CandidateFault: it doesn't compile (`compile_error`, with the user's file and line), or uses what
                isn't available here (`unsupported`).
            EmulatorError: the compiler fails for another reason.
        """
        files = wrapped(source)
        key = _digest(self._base_key(build), list(files.items()))
        kept = self._cache.get(key)
        if kept is not None:
            try:
                program, kernel = unpack(kept)[1]
                return Built(build, program, kernel, source.places, 0.0, key)
            except ValueError:
                self._cache.drop(key)
        started = perf_counter()
        program, kernel = self._compile(source, files, build, trust)
        self._cache.put(key, pack({}, [program, kernel]))
        return Built(build, program, kernel, source.places, perf_counter() - started, key)

    def _base_key(self, build: Build) -> str:
        return _digest(
            [self.compiler.path, self.compiler.version, str(INCLUDE), _own_files()],
            [build.flags, build.runtime_flags, build.link_flags],
        )

    def base(self, build: Build) -> Path:
        """The folder of a build's precompiled header and runtime; makes it if there is none."""
        with self._locks[build]:
            if build not in self._bases:
                self._bases[build] = self._make_base(build)
            return self._bases[build]

    def _make_base(self, build: Build) -> Path:
        target = self._folder / f"base-{self._base_key(build)[:16]}"
        with contextlib.suppress(OSError):
            if (target / "complete").exists():
                (target / "complete").touch()
                return target
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            folder = make_folder(self._folder, "making-")
        except OSError:  # nothing can be kept: this process' own
            folder = make_folder(_temporary(), "warpdeck-emulator-")
            target = folder
        (folder / "emulator.h").write_text(f'#include "{INCLUDE}/emulator.h"\n', encoding="utf-8")
        system = [part for path in self.compiler.includes for part in ("-isystem", path)]
        header = ["-x", "c++-header", "emulator.h", "-o", "emulator.h.gch"]
        self._own(
            folder,
            [*build.flags, *system, f"-I{INCLUDE}", *header],
            [*build.runtime_flags, "-c", str(RUNTIME / "runtime.cpp"), "-o", "runtime.o"],
        )
        (folder / "complete").touch()
        if folder != target:
            try:
                folder.rename(target)
            except OSError:  # another process was faster
                shutil.rmtree(folder, ignore_errors=True)
            self._remove_old()
        return target

    def _remove_old(self) -> None:
        """Remove what other versions made, 20 MB each, once nobody has used it for a week."""
        for mark in self._folder.glob("base-*/complete"):
            with contextlib.suppress(OSError):
                if time() - mark.stat().st_mtime > _OLD_S:
                    shutil.rmtree(mark.parent, ignore_errors=True)

    def _own(self, folder: Path, *compiles: list[str]) -> None:
        """Compile the emulator's own code, all at once."""
        started = [
            subprocess.Popen(
                [self.compiler.path, *arguments],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=without_secrets(),
                text=True,
            )
            for arguments in compiles
        ]
        said = [process.communicate()[1] for process in started]
        for process, text in zip(started, said, strict=True):
            if process.returncode:
                first = next((line for line in text.splitlines() if "error" in line), text[-300:]).strip()
                raise EmulatorError(f"{self.compiler.path} can't compile the emulator's own code: {first}")

    def _compile(
        self, source: Source, files: dict[str, str], build: Build, trust: Trust
    ) -> tuple[bytes, bytes]:
        base = self.base(build)
        work = make_folder(_temporary(), "warpdeck-emulator-")
        try:
            for name, text in files.items():
                path = work / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            policy = sandbox.Policy(
                read=(base, INCLUDE, TRACE_INCLUDE),
                write=(work,),
                processes=True,
                memory=_MEMORY,
                cpu_s=int(COMPILE_S),
            )
            main = next(iter(files))
            includes = [f"-I{work}", f"-I{INCLUDE / 'toolkit'}", f"-I{TRACE_INCLUDE}"]
            compiled = [self.compiler.path, *build.flags, "-include", str(base / "emulator.h"), *includes]
            self._run(
                [*compiled, "-c", str(work / main), "-o", str(work / "kernel.o")], policy, source, trust
            )
            kernel = sandbox.read_file(work / "kernel.o", _PROGRAM)
            _refuse_names(source, kernel, (base / "runtime.o").read_bytes())
            objects = [str(work / "kernel.o"), str(base / "runtime.o")]
            linked = [self.compiler.path, *build.link_flags, *objects, "-o", str(work / "program")]
            self._run(linked, policy, source, trust)
            return sandbox.read_file(work / "program", _PROGRAM), kernel
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _run(self, command: list[str], policy: sandbox.Policy, source: Source, trust: Trust) -> None:
        done = sandbox.run(command, policy, COMPILE_S, layer=layer_of(trust))
        if done.ended:
            raise CandidateFault(Status.COMPILE_ERROR, f"{source.main}: the compiler {done.reason}")
        if done.returncode:
            raise complaint(done.stderr.decode(errors="replace"), source)


def _refuse_names(source: Source, kernel: bytes, runtime: bytes) -> None:
    """Raise CandidateFault for what a kernel takes from the host, or would give it."""
    try:
        foreign, taken = foreign_names(kernel), taken_names(kernel, runtime)
    except ValueError as error:
        raise CandidateFault(
            Status.COMPILE_ERROR, f"{source.main}: the compiler wrote no object: {error}"
        ) from None
    if foreign:
        what = f"{foreign[0]} isn't defined in it: it may be the host's, and a kernel has none of that"
        raise CandidateFault(Status.COMPILE_ERROR, f"{source.main}: {what}")
    if taken:
        what = f"it defines {taken[0]}, a name of the host's library: name it otherwise"
        raise CandidateFault(Status.COMPILE_ERROR, f"{source.main}: {what}")


def _cache_folder() -> Path:
    named = os.environ.get("WARPDECK_EMULATOR_CACHE")
    return Path(named).expanduser() if named else default_folder().with_name("emulator")


def layer_of(trust: Trust) -> sandbox.Layer | None:
    """What keeps code of this trust apart: None means the best there is, or a refusal."""
    return sandbox.Layer.NONE if trust in (Trust.BUNDLED, Trust.OWN) else None


def _temporary() -> Path:
    return Path(tempfile.gettempdir())


def _digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@functools.cache
def _own_files() -> str:
    """Digest of everything of ours that ends up in a program."""
    digest = hashlib.sha256()
    for path in sorted([*INCLUDE.rglob("*"), *RUNTIME.glob("*"), *TRACE_INCLUDE.rglob("*")]):
        if path.is_file():
            digest.update(str(path).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
