"""What works on this machine, and how to mend what does not. Never raises, never needs a GPU.

Each check is a `Check`; those of CUDA libraries run in a process of their own (`probes`), since a broken
library may crash whoever loads it.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..telemetry import nvml, sanitizer
from ..telemetry.ncu import run
from ..telemetry.ncu.errors import NcuError
from . import sandbox
from .environment import without_secrets
from .errors import WarpdeckError
from .probes import PROBES

PROBE_TIMEOUT_S = 60
MIN_FREE_BYTES = 2 << 30


@dataclass(frozen=True)
class Check:
    """One finding. `remedy` is empty where all is well."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""

    def to_json(self) -> dict[str, Any]:
        """As in `doctor --json`."""
        return asdict(self)


def examine(
    home: Path,
    *,
    filesystem: str | None = None,
    network: bool = False,
    environ: Mapping[str, str] = os.environ,
) -> list[Check]:
    """Every check, in the order in which one would mend things.

    Args:
        home: where sessions are kept.
        filesystem: type of the file system that holds it, if known; `network`: whether other hosts share it.
        environ: the environment to judge the terminal by.
    """
    checks: list[Check] = []
    steps: list[tuple[str, Callable[[], Check]]] = [
        ("python", _python),
        ("driver", _driver),
        ("nvml", _nvml),
        ("gpu", _gpu),
    ]
    later: list[tuple[str, Callable[[], Check]]] = [
        ("ncu", _ncu),
        ("ncu counter permission", _counter_permission),
        ("ncu-report", _ncu_report),
        ("nvdisasm", _nvdisasm),
        ("ptxas", _ptxas),
        ("compute-sanitizer", _sanitizer),
        ("device cpu", _emulator),
        ("sandbox", _sandbox),
        ("bubblewrap", _bubblewrap),
        ("landlock", _landlock),
        ("user namespaces", _user_namespaces),
        ("terminal", lambda: _terminal(environ)),
        ("disk space", lambda: _disk(home)),
        ("file system", lambda: _filesystem(home, filesystem, network)),
        ("shared memory", _shared_memory),
        ("gpu lock folder", lambda: _lock_folder(environ)),
    ]
    checks.extend(_guarded(name, step) for name, step in steps)
    checks.extend(_probes())
    checks.extend(_guarded(name, step) for name, step in later)
    return checks


def _guarded(name: str, step: Callable[[], Check]) -> Check:
    try:
        return step()
    except Exception as error:  # noqa: BLE001 - a check that fails is a finding
        return Check(name, False, f"the check itself failed: {type(error).__name__}: {error}", "report this")


def _run(*command: str, timeout: float = 10) -> tuple[int, str]:
    """Exit status and the output's text; 124 on a timeout, 127 if it can't start."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            env=without_secrets(),
        )
    except subprocess.TimeoutExpired:
        return 124, f"no answer within {timeout:g} s"
    except OSError as error:
        return 127, str(error)
    return done.returncode, (done.stdout + done.stderr).strip()


def _python() -> Check:
    detail = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    if _wsl():
        detail += " (WSL2)"
    return Check("python", True, detail)


def _driver() -> Check:
    version = nvml.driver_version()
    if version is None:
        return Check(
            "driver",
            False,
            nvml.unavailable() or "the driver does not tell its version",
            "to measure here, install an NVIDIA driver (Debian: nvidia-driver; WSL2: on Windows only; "
            "container: --gpus all); recordings and replay work without",
        )
    cuda = nvml.cuda_version()
    detail = f"driver {version}" + (f", CUDA {cuda[0]}.{cuda[1]}" if cuda else "")
    if cuda is not None and cuda < (13, 0):
        return Check(
            "driver",
            False,
            detail,
            'update to 580 or newer, or pip install "warpdeck[cuda12]" instead of [cuda]',
        )
    return Check("driver", True, detail)


def _nvml() -> Check:
    why = nvml.unavailable()
    if why:
        return Check(
            "nvml", False, why, "comes with the driver; in a container pass libnvidia-ml.so.1 through"
        )
    return Check("nvml", True, f"{nvml.device_count()} device(s) visible")


def _gpu() -> Check:
    found = nvml.devices()
    if not found:
        return Check(
            "gpu", False, "no CUDA GPU", "use --device recorded:h200 or cpu, or a machine with a GPU"
        )
    problems, texts = [], []
    for gpu in found:
        capability = (
            f" sm_{gpu.compute_capability[0]}{gpu.compute_capability[1]}" if gpu.compute_capability else ""
        )
        texts.append(f"cuda:{gpu.index} {gpu.name}{capability}")
        if gpu.compute_capability and gpu.compute_capability < (7, 5):
            problems.append(f"cuda:{gpu.index} is older than compute capability 7.5: use the extra cuda12")
        if gpu.mig:
            problems.append(f"cuda:{gpu.index} is in MIG mode: utilisation can't be read")
        if gpu.compute_mode == "prohibited":
            problems.append(f"cuda:{gpu.index} prohibits compute: nvidia-smi -i {gpu.index} -c 0")
        users = nvml.compute_processes(gpu.index)
        if users:
            texts[-1] += f" (in use by {len(users)} process(es))"
    return Check("gpu", not problems, "; ".join(texts), "; ".join(problems))


def _probes() -> list[Check]:
    command = (sys.executable, "-m", "warpdeck.core.probes")
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            env=without_secrets(),
        )
        output, ended = done.stdout, f"exit status {done.returncode}"
    except subprocess.TimeoutExpired as error:
        raw = error.stdout or b""
        output = raw.decode(errors="replace") if isinstance(raw, bytes) else raw
        ended = f"no answer within {PROBE_TIMEOUT_S} s"
    except OSError as error:
        output, ended = "", str(error)
    found: dict[str, Check] = {}
    for text in output.splitlines():
        try:
            data = json.loads(text)
            found[data["name"]] = Check(data["name"], data["ok"], data["detail"], data["remedy"])
        except (ValueError, KeyError, TypeError):
            continue
    crashed = "loading it took the process down; reinstall the CUDA packages"
    return [
        found.get(name) or Check(name, False, f"the probe did not end: {ended}", crashed) for name in PROBES
    ]


def _ncu() -> Check:
    try:
        path = run.find()
    except NcuError as error:
        return Check("ncu", False, error.message, f"only for hardware counters: {error.remedy}")
    remedy = "only for hardware counters: reinstall Nsight Compute"
    status, text = _run(str(path), "--version", timeout=20)
    last = text.splitlines()[-1] if text else ""
    return Check("ncu", status == 0, f"{path}: {last}", "" if status == 0 else remedy)


def _ncu_report() -> Check:
    try:
        return Check("ncu-report", True, importlib.metadata.version("ncu-report"))
    except importlib.metadata.PackageNotFoundError:
        remedy = 'only to read .ncu-rep files without ncu: pip install "warpdeck[cuda]"'
        return Check("ncu-report", False, "the package is not installed", remedy)


def _nvdisasm() -> Check:
    from .toolchain.disassembly import find

    try:
        return Check("nvdisasm", True, str(find()))
    except WarpdeckError as error:
        what, _, remedy = str(error).partition(": ")
        return Check("nvdisasm", False, what, f"only for `warpdeck sass`: {remedy}")


def _ptxas() -> Check:
    from .toolchain.assembler import find

    try:
        return Check("ptxas", True, str(find()))
    except WarpdeckError as error:
        what, _, remedy = str(error).partition(": ")
        return Check("ptxas", False, what, f"only for traces that cost the least: {remedy}")


def _counter_permission(proc: Path = Path("/proc")) -> Check:
    name = "ncu counter permission"
    try:
        text = (proc / "driver/nvidia/params").read_text()
    except OSError:
        if _wsl():
            how = "NVIDIA Control Panel, Developer, Manage GPU Performance Counters"
            return Check(name, True, f"not known: under WSL2 it is Windows that permits ({how})")
        return Check(
            name, False, "no NVIDIA kernel driver here, so nothing to permit", "see the check 'driver'"
        )
    if "RmProfilingAdminOnly: 1" not in text:
        return Check(name, True, "counters are open to all users")
    # Root in a container has neither unless it is told to.
    if _has_capability(_CAP_SYS_ADMIN, proc) or _has_capability(_CAP_PERFMON, proc):
        return Check(name, True, "counters are for administrators only, and this is one")
    return Check(
        name,
        False,
        "counters are for administrators only (ncu will say ERR_NVGPUCTRPERM)",
        "run as root (in a container with --cap-add=SYS_ADMIN), or load the driver with "
        "options nvidia NVreg_RestrictProfilingToAdminUsers=0",
    )


_CAP_SYS_ADMIN, _CAP_PERFMON = 21, 38


def _has_capability(bit: int, proc: Path) -> bool:
    for row in (proc / "self/status").read_text().splitlines():
        if row.startswith("CapEff:"):
            return bool(int(row.split()[1], 16) >> bit & 1)
    return False


def _wsl() -> bool:
    return "microsoft" in platform.release().lower()


def _sanitizer() -> Check:
    try:
        path = sanitizer.find()
    except sanitizer.SanitizerError as error:
        what, _, remedy = str(error).partition(": ")
        return Check("compute-sanitizer", False, what, f"only to hunt memory errors: {remedy}")
    status, text = _run(str(path), "--version", timeout=20)
    first = next((row for row in text.splitlines() if "ersion" in row), text[:80])
    return Check(
        "compute-sanitizer",
        status == 0,
        f"{path}: {first}",
        "" if status == 0 else "reinstall the CUDA toolkit",
    )


def _emulator() -> Check:
    from .emulator import EmulatorError, find_compiler

    try:
        compiler = find_compiler()
    except EmulatorError as error:
        what, _, remedy = str(error).partition(": ")
        return Check("device cpu", False, what, f"only to check kernels without a GPU: {remedy or what}")
    return Check("device cpu", True, f"kernels are emulated with {compiler.path}, {compiler.version}")


def _sandbox() -> Check:
    """What code that a model or a client wrote would run in."""
    found = sandbox.layers()
    if found.best is sandbox.Layer.NONE:
        return Check("sandbox", False, "nothing isolates code of others here", sandbox.REMEDY)
    return Check("sandbox", True, f"code of others runs under {', '.join(found.active)}")


def _bubblewrap() -> Check:
    found = sandbox.layers().bubblewrap
    remedy = "only for generated or remote code: apt-get install bubblewrap, and allow user namespaces"
    return Check("bubblewrap", found.works, found.detail, "" if found.works else remedy)


def _landlock() -> Check:
    found = sandbox.layers().landlock
    remedy = "only for generated or remote code: Linux 5.13 or newer, with lsm=…,landlock on its command line"
    return Check("landlock", found.works, found.detail, "" if found.works else remedy)


def _user_namespaces() -> Check:
    name = "user namespaces"
    remedy = (
        "only to isolate untrusted kernels: sysctl user.max_user_namespaces=10000, "
        "and on Ubuntu kernel.apparmor_restrict_unprivileged_userns=0"
    )
    path = shutil.which("unshare")
    if path is None:
        return Check(name, False, "the command unshare (util-linux) is missing", "apt-get install util-linux")
    status, text = _run(path, "--user", "--map-root-user", "true")
    return Check(name, status == 0, "allowed" if status == 0 else text[:200], "" if status == 0 else remedy)


def _terminal(environ: Mapping[str, str]) -> Check:
    term = environ.get("TERM", "")
    columns, rows = shutil.get_terminal_size((0, 0))
    encoding = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "")
    locale = environ.get("LC_ALL") or environ.get("LC_CTYPE") or environ.get("LANG") or ""
    colours = "none (NO_COLOR)" if environ.get("NO_COLOR") else _colours(term, environ)
    parts = [f"TERM={term or 'unset'}", f"colours: {colours}", f"encoding: {encoding or 'unknown'}"]
    problems = []
    if environ.get("TMUX"):
        parts.append("inside tmux")
        if colours not in ("truecolor", "none (NO_COLOR)"):
            problems.append(
                "in tmux: set -ga terminal-overrides ',*:Tc', and set -s set-clipboard on to copy"
            )
    if not sys.stdout.isatty():
        parts.append("output is not a terminal: commands run headless")
    else:
        parts.append(f"{columns}×{rows}")
        if columns < 80 or rows < 24:
            problems.append("enlarge the window to at least 80×24")
        if term in ("", "dumb"):
            problems.append("TERM names no capable terminal: export TERM=xterm-256color")
    if encoding and encoding != "utf8":
        problems.append(f"the dashboard needs UTF-8 (locale {locale or 'unset'}): export LC_ALL=C.UTF-8")
    return Check("terminal", not problems, ", ".join(parts), "; ".join(problems))


def _colours(term: str, environ: Mapping[str, str]) -> str:
    if environ.get("COLORTERM", "").lower() in ("truecolor", "24bit") or "direct" in term:
        return "truecolor"
    if "256" in term or "kitty" in term:
        return "256"
    return "16" if term not in ("", "dumb") else "unknown"


def _existing(path: Path) -> Path:
    """The path or its nearest parent that exists."""
    return next((p for p in (path, *path.parents) if p.exists()), Path("/"))


def _disk(home: Path) -> Check:
    try:
        place = _existing(home)
        with tempfile.TemporaryFile(dir=place):  # the permission alone may be there on a read-only disk
            free = shutil.disk_usage(place).free
    except OSError as error:
        detail = f"{home} can't be written: {error.strerror}"
        return Check("disk space", False, detail, "set WARPDECK_HOME to a folder you can write")
    detail = f"{free / 2**30:.1f} GiB free for {home}"
    if free < MIN_FREE_BYTES:
        return Check("disk space", False, detail, "free some space, or set WARPDECK_HOME to another disk")
    return Check("disk space", True, detail)


def _filesystem(home: Path, kind: str | None, network: bool) -> Check:
    if network:
        return Check(
            "file system",
            False,
            f"{home} is on {kind}, where SQLite's write-ahead log does not work",
            "sessions go to a local folder instead; set WARPDECK_HOME to a local disk to choose which",
        )
    return Check("file system", True, f"{kind or 'unknown kind'}: fit for sessions")


def _shared_memory() -> Check:
    place = Path("/dev/shm")
    if not place.is_dir():
        return Check("shared memory", False, "/dev/shm is missing", "mount a tmpfs on /dev/shm")
    total = shutil.disk_usage(place).total
    detail = f"/dev/shm has {total / 2**30:.2f} GiB"
    if total < 1 << 30:
        return Check("shared memory", False, detail, "large sizes need more: docker run --shm-size=8g")
    return Check("shared memory", True, detail)


def _lock_folder(environ: Mapping[str, str]) -> Check:
    folder = Path(environ.get("WARPDECK_LOCK_DIR") or "/run/lock")
    if folder.is_dir() and os.access(folder, os.W_OK):
        return Check("gpu lock folder", True, f"{folder} can be written")
    return Check(
        "gpu lock folder",
        False,
        f"{folder} can't be written",
        "set WARPDECK_LOCK_DIR to a folder that all users of the GPU can write",
    )
