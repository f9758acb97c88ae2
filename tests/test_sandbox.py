"""Attacks on the sandbox, each under every layer that works here."""

from __future__ import annotations

import functools
import json
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from warpdeck.core import sandbox
from warpdeck.core.errors import UsageError
from warpdeck.core.model import Status
from warpdeck.core.sandbox import (
    Layer,
    Layers,
    Policy,
    Probe,
    Sandbox,
    SandboxError,
    commands,
    filters,
    probing,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sandboxes are for Linux")


@pytest.fixture(params=[Layer.BUBBLEWRAP, Layer.LANDLOCK])
def layer(request):
    found = getattr(sandbox.layers(), request.param)
    if not found.works:
        pytest.skip(f"{request.param} does not work here: {found.detail}")
    return request.param


def attack(layer, code, *arguments, timeout_s=20.0, read=(), write=(), **policy):
    """Run Python text in the sandbox."""
    box = Sandbox(Policy(python=True, **policy), layer)
    argv = [sys.executable, "-I", "-S", "-c", textwrap.dedent(code), *map(str, arguments)]
    return box.run(argv, timeout_s=timeout_s, read=read, write=write)


TRY = """
import os, sys
def attempt(action):
    try:
        action()
    except OSError as error:
        print("refused", error.errno)
    else:
        print("DONE")
"""


def test_a_program_runs_with_its_input_output_and_private_folder(layer):
    code = """
    import os, sys
    open(os.path.join(os.environ["TMPDIR"], "mine"), "w").write("x")
    assert os.getcwd() == os.environ["HOME"] == os.environ["TMPDIR"]
    print(sys.stdin.read()[::-1]); print("problem", file=sys.stderr); sys.exit(3)
    """
    argv = [sys.executable, "-I", "-S", "-c", textwrap.dedent(code)]
    done = Sandbox(Policy(python=True), layer).run(argv, stdin=b"abc" * 100_000)
    assert done.returncode == 3 and not done.ok and not done.ended and done.layer is layer
    assert done.stdout == b"cba" * 100_000 + b"\n" and done.stderr == b"problem\n"
    assert done.said() == "ended with exit code 3: problem"


def test_secrets_in_the_home_folder_and_elsewhere_cannot_be_read(layer, tmp_path, monkeypatch):
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id_ed25519").write_text("PRIVATE")
    monkeypatch.setenv("HOME", str(home))
    code = (
        TRY
        + """
for path in sys.argv[1:]:
    attempt(lambda: print(open(path).read()))
"""
    )
    paths = [home / ".ssh" / "id_ed25519", "/etc/shadow", "/etc/passwd", "/etc/hostname"]
    done = attack(layer, code, *paths)
    assert done.ok, done.said()
    assert done.stdout.count(b"refused") == len(paths) and b"DONE" not in done.stdout
    assert attack(layer, code, paths[0], read=[paths[0]]).stdout == b"PRIVATE\nDONE\n"


def test_nothing_outside_can_be_changed(layer, tmp_path):
    victim, folder = tmp_path / "victim", tmp_path / "folder"
    victim.write_text("as it was")
    folder.mkdir()
    code = (
        TRY
        + """
victim, folder = sys.argv[1:]
attempt(lambda: open(victim, "w"))
attempt(lambda: open(victim, "a"))
attempt(lambda: os.truncate(victim, 0))
attempt(lambda: os.remove(victim))
attempt(lambda: os.rename(victim, victim + "2"))
attempt(lambda: os.chmod(victim, 0o777))
attempt(lambda: os.utime(victim, (0, 0)))
attempt(lambda: os.setxattr(victim, "user.x", b"y"))
attempt(lambda: os.link(victim, os.path.join(os.environ["HOME"], "link")))
attempt(lambda: open(folder + "/new", "w"))
attempt(lambda: os.mkdir(folder + "/new"))
attempt(lambda: os.rmdir(folder))
attempt(lambda: open("/usr/bin/new", "w"))
attempt(lambda: open("/tmp/new-of-a-sandbox", "w"))
attempt(lambda: open("/dev/shm/new-of-a-sandbox", "w"))
"""
    )
    before = victim.stat()
    for read in ([], [victim, folder]):
        done = attack(layer, code, victim, folder, read=read)
        assert done.ok, done.said()
        assert done.stdout.count(b"refused") == 15 and b"DONE" not in done.stdout
    after = victim.stat()
    assert victim.read_text() == "as it was" and list(folder.iterdir()) == []
    assert (after.st_mode, after.st_mtime_ns, after.st_nlink) == (before.st_mode, before.st_mtime_ns, 1)


def test_the_network_cannot_be_used(layer):
    with socket.socket() as server, socket.socket(socket.AF_UNIX) as local:
        server.bind(("127.0.0.1", 0))
        server.listen()
        local.bind(f"\0warpdeck-test-{os.getpid()}")
        local.listen()
        code = (
            TRY
            + """
import _socket as s
attempt(lambda: s.socket(s.AF_INET, s.SOCK_STREAM).connect(("127.0.0.1", int(sys.argv[1]))))
attempt(lambda: s.socket(s.AF_INET, s.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", int(sys.argv[1]))))
attempt(lambda: s.socket(s.AF_INET6, s.SOCK_STREAM))
attempt(lambda: s.socket(s.AF_UNIX, s.SOCK_STREAM).connect("\\0warpdeck-test-" + sys.argv[2]))
attempt(lambda: s.socketpair(s.AF_UNIX, s.SOCK_DGRAM))
"""
        )
        done = attack(layer, code, server.getsockname()[1], os.getpid())
        assert done.ok, done.said()
        assert done.stdout.split() == b"refused 1".split() * 5
        for listener in (server, local):
            listener.setblocking(False)
            with pytest.raises(BlockingIOError):
                listener.accept()


def test_other_processes_cannot_be_seen_or_signalled(layer, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-of-the-parent")
    victim = subprocess.Popen(["sleep", "60"])
    try:
        code = (
            TRY
            + """
import ctypes, signal
parent, victim = map(int, sys.argv[1:])
libc = ctypes.CDLL(None, use_errno=True)
def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
attempt(lambda: print(open(f"/proc/{parent}/environ", "rb").read()))
attempt(lambda: print(open(f"/proc/{parent}/mem", "rb").read(1)))
attempt(lambda: print(os.listdir(f"/proc/{parent}/fd")))
attempt(lambda: checked(libc.ptrace(16, parent, 0, 0)))
attempt(lambda: os.kill(victim, signal.SIGKILL))
attempt(lambda: os.kill(parent, signal.SIGTERM))
attempt(lambda: os.setpriority(os.PRIO_PROCESS, victim, 19))
attempt(lambda: os.sched_setaffinity(victim, {0}))
"""
        )
        done = attack(layer, code, os.getpid(), victim.pid)
        assert done.ok, done.said()
        assert done.stdout.count(b"refused") == 8 and b"DONE" not in done.stdout
        assert b"sk-secret" not in done.stdout + done.stderr
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.wait()


def test_its_environment_holds_no_secret(layer, monkeypatch):
    for name in ("OPENAI_API_KEY", "HF_TOKEN", "MY_SECRET", "LC_KEY", "SSH_AUTH_SOCK", "RANDOM_VARIABLE"):
        monkeypatch.setenv(name, "do-not-tell")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    policy = Policy(environment={"GIVEN": "yes", "GIVEN_TOKEN": "do-not-tell"})
    done = Sandbox(policy, layer).run(["env"])
    names = {line.partition("=")[0] for line in done.stdout.decode().splitlines()}
    assert b"do-not-tell" not in done.stdout and {"GIVEN", "PATH", "HOME", "OMP_NUM_THREADS"} <= names
    assert "RANDOM_VARIABLE" not in names


def test_a_fork_bomb_is_refused_or_ended(layer):
    code = (
        TRY
        + """
attempt(os.fork)
attempt(lambda: os.posix_spawn("/bin/true", ["true"], {}))
"""
    )
    assert attack(layer, code).stdout.split() == b"refused 1".split() * 2
    bomb = """
    import os
    while True:
        try:
            os.fork()
        except OSError:
            pass
    """
    start = time.monotonic()
    done = attack(layer, bomb, timeout_s=3, processes=True)
    assert done.ended in ("tasks", "timeout", "memory") and time.monotonic() - start < 60
    assert leftover("os.fork()") == []


def test_what_it_leaves_running_is_ended(layer):
    code = """
    import os, signal, sys, time
    if os.fork() == 0:
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        try:
            os.setsid()
        except OSError:
            pass
        time.sleep(1000)  # marker-of-the-straggler
    os._exit(0)
    """
    start = time.monotonic()
    done = attack(layer, code, processes=True)
    assert done.ok and time.monotonic() - start < 60
    assert leftover("marker-of-the-straggler") == []


def leftover(text):
    """Processes other than this one whose command line holds a text."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z" and text.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def test_a_thread_bomb_is_ended(layer):
    code = """
    import _thread, time
    while True:
        try:
            _thread.start_new_thread(time.sleep, (1000,))
        except RuntimeError:
            time.sleep(0.01)
    """
    done = attack(layer, code, timeout_s=10, address_space=False)
    assert done.ended == "tasks" and "512" in done.reason


def test_the_disk_cannot_be_filled(layer):
    one = """
    import os
    with open(os.path.join(os.environ["HOME"], "large"), "wb") as file:
        while True:
            file.write(bytes(1 << 20))
    """
    done = attack(layer, one, file_size=8 << 20)
    assert not done.ok and b"File too large" in done.stderr
    many = """
    import os, itertools
    for number in itertools.count():
        with open(os.path.join(os.environ["HOME"], str(number)), "wb") as file:
            file.write(bytes(1 << 20))
    """
    done = attack(layer, many, disk=32 << 20)
    assert done.ended == "disk" and done.reason == "it wrote more than 32 MiB"


def test_memory_is_limited(layer):
    code = "x = bytearray(3 << 30); x[::4096] = b'1' * len(x[::4096])"
    done = attack(layer, code, memory=1 << 30)
    assert done.returncode == 1 and done.stderr.strip().endswith(b"MemoryError")
    slow = """
    kept = []
    while True:
        kept.append(bytearray(b"1") * (8 << 20))
    """
    done = attack(layer, slow, memory=256 << 20, address_space=False)
    assert done.ended == "memory" and done.reason == "it used more than 256 MiB of memory"


def test_huge_output_is_drained_and_bounded(layer):
    code = """
    import sys
    for stream in (sys.stdout, sys.stderr):
        stream.write("first")
        for _ in range(64):
            stream.write("x" * (1 << 20))
        stream.write("last")
    """
    done = attack(layer, code)
    assert done.ok and done.truncated
    for data in (done.stdout, done.stderr):
        assert len(data) < 1_100_000 and data.startswith(b"first") and data.endswith(b"last")


def test_a_sleeper_that_ignores_sigterm_is_killed(layer):
    code = """
    import signal, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(1000)
    """
    done = attack(layer, code, timeout_s=0.5)
    assert (done.ended, done.reason) == ("timeout", "took more than 0.5 s")
    assert done.seconds < 5 and not done.ok


def test_processor_time_is_limited(layer):
    done = attack(layer, "while True: pass", cpu_s=1)
    assert done.returncode in (-signal.SIGKILL, -signal.SIGXCPU) and done.seconds < 10


def test_links_do_not_lead_out(layer, tmp_path):
    secret, shared = tmp_path / "secret", tmp_path / "shared"
    secret.write_text("PRIVATE")
    shared.mkdir()
    code = (
        TRY
        + """
secret, shared = sys.argv[1:]
os.symlink(secret, shared + "/link")
os.symlink("/proc/self/root" + secret, shared + "/root")
os.mkfifo(shared + "/pipe")
open(shared + "/plain", "w").write("fine")
attempt(lambda: open(shared + "/link").read())
attempt(lambda: open(shared + "/root").read())
attempt(lambda: open("/proc/self/root" + secret).read())
attempt(lambda: open("/proc/self/cwd/../../../../../.." + secret).read())
"""
    )
    done = attack(layer, code, secret, shared, write=[shared])
    assert done.ok, done.said()
    assert done.stdout.count(b"refused") == 4 and b"DONE" not in done.stdout
    assert sandbox.read_file(shared / "plain", 100) == b"fine"
    for name, limit in (("link", 100), ("root", 100), ("pipe", 100), ("missing", 100), ("plain", 3)):
        with pytest.raises(SandboxError):
            sandbox.read_file(shared / name, limit)
    sandbox.write_file(shared / "link", b"ours")
    assert sandbox.read_file(shared / "link", 100) == b"ours" and secret.read_text() == "PRIVATE"


def test_privileges_cannot_be_gained(layer):
    code = (
        TRY
        + """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
lines = open("/proc/self/status").read().splitlines()
status = dict(line.split(":\\t", 1) for line in lines if ":\\t" in line)
print(status["NoNewPrivs"], status["Seccomp"], int(status["CapEff"], 16), int(status["CapBnd"], 16))
attempt(lambda: checked(libc.unshare(0x10000000)))
attempt(lambda: checked(libc.mount(b"none", b"/tmp", b"tmpfs", 0, None)))
attempt(lambda: os.mknod(os.environ["HOME"] + "/disk", 0o60600, os.makedev(8, 0)))
attempt(lambda: checked(libc.syscall(425, 8, ctypes.create_string_buffer(256))))
attempt(lambda: os.chroot("/usr"))
"""
    )
    done = attack(layer, code)
    assert done.ok, done.said()
    lines = done.stdout.decode().splitlines()
    assert lines[0].split()[:3] == ["1", "2", "0"]
    if os.geteuid() == 0:
        assert lines[0].split()[3] == "0"
    assert len(lines) == 6 and all(line.startswith("refused") for line in lines[1:])


def test_a_sandboxed_process_ends_with_whoever_started_it(layer, tmp_path):
    code = f"""
    import sys, time
    from pathlib import Path
    from warpdeck.core import sandbox
    policy = sandbox.Policy(python=True, write=[Path({str(tmp_path)!r})])
    loop = "import os, time; open('up', 'w').write(str(os.getpid())); time.sleep(1000)  # marker-of-an-orphan"
    argv = [sys.executable, "-I", "-S", "-c", loop]
    sandbox.spawn(sandbox.wrap(argv, policy, sandbox.Layer({str(layer)!r})))
    while not Path({str(tmp_path / "up")!r}).exists():
        time.sleep(0.01)
    import os, signal
    os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], timeout=60)
    assert done.returncode == -signal.SIGKILL and (tmp_path / "up").exists()
    limit = time.monotonic() + 60
    while leftover("marker-of-an-orphan") and time.monotonic() < limit:
        os.sched_yield()
    assert leftover("marker-of-an-orphan") == []


@pytest.mark.parametrize("abi", [1, 2, 3, 4, 5])
def test_an_older_landlock_holds_too(abi, tmp_path, monkeypatch):
    """What the kernel of that time can't refuse, the filter does."""
    if not sandbox.layers().landlock.works or commands.landlock_abi() < abi:
        pytest.skip(sandbox.layers().landlock.detail)
    monkeypatch.setattr(commands, "landlock_abi", lambda: abi)
    victim = tmp_path / "victim"
    victim.write_text("as it was")
    code = (
        TRY
        + """
import _socket, signal
victim, parent, inside = sys.argv[1], int(sys.argv[2]), os.environ["HOME"]
attempt(lambda: open(victim))
attempt(lambda: open(victim, "w"))
attempt(lambda: os.truncate(victim, 0))
attempt(lambda: os.link(victim, inside + "/link"))
attempt(lambda: os.rename(victim, inside + "/moved"))
attempt(lambda: open(f"/proc/{parent}/environ"))
attempt(lambda: _socket.socket())
attempt(lambda: os.kill(parent, 0))
attempt(lambda: os.kill(-parent, signal.SIGTERM))
attempt(lambda: os.pidfd_open(parent) and signal.pidfd_send_signal(os.pidfd_open(parent), 0))
print(os.kill(os.getpid(), 0), open(inside + "/mine", "w").write("x"), flush=True)
os.abort()
"""
    )
    done = attack(Layer.LANDLOCK, code, victim, os.getpid())
    assert done.stdout.count(b"refused") == 10 and b"DONE" not in done.stdout, done
    assert done.returncode == -signal.SIGABRT and done.stdout.splitlines()[-1].startswith(b"None 1")
    assert victim.read_text() == "as it was"


def test_a_sandbox_is_quick(layer):
    times = sorted(Sandbox(Policy(), layer).run(["true"]).seconds for _ in range(7))
    assert times[0] < 0.25  # some 15 to 25 ms on an idle machine


def test_a_compiler_works_in_it(layer, tmp_path):
    if shutil.which("g++") is None:
        pytest.skip("no g++ here")
    source, out = tmp_path / "a.cpp", tmp_path / "out"
    out.mkdir()
    source.write_text('#include <cstdio>\nint main() { std::puts("hello"); }\n')
    program = out / "a"
    policy = Policy(processes=True)
    done = Sandbox(policy, layer).run(["g++", str(source), "-o", str(program)], read=[source], write=[out])
    assert done.ok, done.said()
    assert Sandbox(Policy(), layer).run([str(program)], read=[program]).stdout == b"hello\n"


def test_a_python_script_uses_numpy(tmp_path):
    if sandbox.layers().best is Layer.NONE:
        pytest.skip("nothing isolates here")
    script, out = tmp_path / "script.py", tmp_path / "out"
    out.mkdir()
    script.write_text(
        "import sys, numpy as np\nnp.save(sys.argv[1], np.ones((300, 300)) @ np.ones((300, 300)))\n"
    )
    done = sandbox.run_python(script, [str(out / "a.npy")], write=[out])
    assert done.ok, done.said()
    assert (out / "a.npy").stat().st_size == 128 + 8 * 300 * 300


@pytest.mark.parametrize("name", ["no-such-program", "/usr/bin/no-such-program"])
def test_a_program_that_is_missing_says_so(name):
    with pytest.raises(SandboxError, match=f"{name}: there is no such program"):
        Sandbox(Policy(), Layer.NONE).run([name])


@pytest.mark.parametrize("where", ["/", "~", "~/.."])
def test_a_policy_cannot_give_the_home_folder_away(where, tmp_path, monkeypatch):
    home = tmp_path / "users" / "me"
    home.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    path = Path(where).expanduser()
    for policy in (Policy(read=[path]), Policy(write=[path])):
        with pytest.raises(UsageError, match="home folder"):
            Sandbox(policy).run(["true"])


def test_without_any_layer_code_is_refused_unless_allowed():
    none = Layers(Probe(False, "bwrap is not installed"), Probe(False, "switched off"), Probe(True, "works"))
    with pytest.raises(
        SandboxError, match=r"bubblewrap: bwrap is not installed.*--allow-unsandboxed"
    ) as found:
        sandbox.require(none)
    assert found.value.status is Status.SANDBOX_ERROR and "apt-get install bubblewrap" in str(found.value)
    assert sandbox.require(none, allowed=True) is Layer.NONE
    sandbox.allow_unsandboxed(True)
    try:
        assert sandbox.require(none) is Layer.NONE
    finally:
        sandbox.allow_unsandboxed(False)
    assert none.active == ("seccomp", "limits") and none.to_json()["landlock"]["works"] is False


def test_a_layer_that_does_not_hold_is_found_out():
    problem = probing._attacked(Layer.NONE)
    assert problem.startswith("it doesn't hold: files of others can be read; files outside can be written")


@pytest.mark.parametrize(
    ("machine", "column", "header"),
    [
        ("x86_64", 0, "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
        ("aarch64", 1, "/usr/include/asm-generic/unistd.h"),
    ],
)
def test_call_numbers_are_the_kernels_own(machine, column, header):
    if not Path(header).is_file():
        pytest.skip(f"no {header}")
    numbers = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", Path(header).read_text()))
    every = {**filters.CALLS, **filters.BY_PATH, **filters.OTHERS, "truncate": filters.TRUNCATE}
    newer = {"open_tree_attr", "setxattrat", "removexattrat", "file_setattr", "fchmodat2"}
    for name, columns in every.items():
        if columns[column] is not None and (name in numbers or name not in newer):
            assert int(numbers[name]) == columns[column], (machine, name)
        elif columns[column] is None:
            assert name not in numbers, (machine, name)


def test_there_is_a_filter_for_this_machine():
    assert filters.supported() == (platform.machine() in ("x86_64", "aarch64"))
    code = filters.program(processes=False, by_path=True, truncate=True, signals=True)
    assert len(code) % 8 == 0 and len(code) // 8 < 4096


def test_the_record_is_json_and_names_what_is_active():
    found = json.loads(json.dumps(sandbox.record()))
    layers = sandbox.layers()
    assert found["active"] == list(layers.active) and found["allow_unsandboxed"] is False
    assert found["isolated"] is (layers.best is not Layer.NONE)
    assert found["bubblewrap"] == {"works": layers.bubblewrap.works, "detail": layers.bubblewrap.detail}


def test_layers_are_tried_once_whoever_asks_meanwhile(monkeypatch):
    together = threading.Barrier(2)
    tried = []

    def probe() -> probing.Probe:
        tried.append(threading.get_ident())
        with suppress(threading.BrokenBarrierError):
            together.wait(0.3)  # for a second one, which must not come
        return probing.Probe(False, "not here")

    monkeypatch.setattr(probing, "_bubblewrap", probe)
    monkeypatch.setattr(probing, "_tried", functools.cache(probing._tried.__wrapped__))
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: probing.layers(), range(2))
    assert len(tried) == 1 and first is second
