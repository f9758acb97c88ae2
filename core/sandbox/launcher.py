"""The first program of every sandboxed process: it gives up what it can, then becomes the target.

Run as a script by `programs.wrap`, never imported by what it starts. Only builtins and ctypes, so that it
takes some 12 ms; everything is worked out before, by the parent, and comes as one marshalled dictionary.
"""

from __future__ import annotations

import ctypes
import marshal
import os
import sys

FAILED = 125  # exit code: the sandbox could not be made; the reason is on stderr
MARK = "warpdeck sandbox: "
OWN_PID = 0x5A17C0DE  # stands in the filter for the process' own number

_SET_PDEATHSIG, _SET_NO_NEW_PRIVS, _SET_SECCOMP, _CAPBSET_DROP = 1, 38, 22, 24
_FILTER_MODE = 2
_KILL = 9
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITIES_V3 = 0x20080522


def main() -> None:
    """Apply argv[1] (a marshalled dictionary in hex, see `commands`) and execute argv[2:]."""
    plan = marshal.loads(bytes.fromhex(sys.argv[1]))
    try:
        _apply(plan, sys.argv[2:])
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        os.write(2, f"{MARK}{where}{error.strerror or error}\n".encode())
        os._exit(FAILED)


def _apply(plan: dict, argv: list[str]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    if os.getsid(0) != os.getpid():
        os.setsid()  # one signal to the group reaches everything that is started in here
    os.closerange(3, 1 << 20)
    _expendable()
    _limits(plan["limits"])
    bubblewrap = plan["bubblewrap"]
    if not bubblewrap and os.geteuid() == 0:
        _drop_capabilities(libc)
    _check(libc.prctl(_SET_PDEATHSIG, _KILL, 0, 0, 0), "prctl")
    if os.getppid() != plan["parent"]:
        os._exit(FAILED)  # it ended before it could be watched
    _check(libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    if plan["folder"]:
        os.chdir(plan["folder"])
    if plan["rules"]:
        _landlock(libc, plan["ruleset"], plan["rules"])
    code = plan["filter"]
    if bubblewrap:
        if code:
            descriptor = os.memfd_create("filter", 0)
            os.write(descriptor, code)
            os.lseek(descriptor, 0, os.SEEK_SET)
            bubblewrap += ["--seccomp", str(descriptor)]
        argv = [*bubblewrap, "--", *argv]
    elif code:
        _seccomp(libc, code)
    os.execve(argv[0], argv, plan["environment"])


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _expendable() -> None:
    """Where memory runs out, this goes first."""
    try:
        descriptor = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
    except OSError:
        return
    try:
        os.write(descriptor, b"1000")
    except OSError:
        pass
    finally:
        os.close(descriptor)


def _limits(limits: list[tuple[int, int]]) -> None:
    import resource

    for kind, value in limits:
        hard = resource.getrlimit(kind)[1]
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        resource.setrlimit(kind, (value, value))


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    """Root without capabilities: no module, no mount, no other user's file, no look into other processes."""
    number = 0
    while libc.prctl(_CAPBSET_DROP, number, 0, 0, 0) == 0:
        number += 1
    call = _CAPSET.get(os.uname().machine)
    if call is not None:
        header = (ctypes.c_uint32 * 2)(_CAPABILITIES_V3, 0)
        _check(libc.syscall(call, header, (ctypes.c_uint32 * 6)()), "capset")


def _landlock(libc: ctypes.CDLL, attributes: bytes, rules: list[tuple[str, int]]) -> None:
    """Allow what the rules name, (path, rights); a path that isn't there needs no rule."""
    size = ctypes.c_size_t(len(attributes))
    ruleset = _check(
        libc.syscall(_CREATE_RULESET, ctypes.c_char_p(attributes), size, ctypes.c_uint(0)), "landlock"
    )
    for path, rights in rules:
        try:
            beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        rule = rights.to_bytes(8, sys.byteorder) + beneath.to_bytes(4, sys.byteorder)
        added = libc.syscall(_ADD_RULE, ruleset, ctypes.c_int(1), ctypes.c_char_p(rule), ctypes.c_uint(0))
        _check(added, f"landlock: {path}")
        os.close(beneath)
    _check(libc.syscall(_RESTRICT_SELF, ruleset, ctypes.c_uint(0)), "landlock")
    os.close(ruleset)


def _seccomp(libc: ctypes.CDLL, code: bytes) -> None:
    code = code.replace(OWN_PID.to_bytes(4, sys.byteorder), os.getpid().to_bytes(4, sys.byteorder))
    buffer = ctypes.create_string_buffer(code, len(code))

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]

    program = Program(len(code) // 8, ctypes.addressof(buffer))
    _check(libc.prctl(_SET_SECCOMP, _FILTER_MODE, ctypes.byref(program), 0, 0), "seccomp")


if __name__ == "__main__":
    main()
