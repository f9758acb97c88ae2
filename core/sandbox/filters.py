"""The system-call filter: a classic BPF program that refuses what sandboxed code has no use for.

A list of what is refused, not of what is allowed: interpreters, compilers and sanitizers use half of the
kernel's calls, and a call that is missing from an allow-list shows as a crash on somebody else's machine.
What is refused answers EPERM, so that a program says so instead of dying.
"""

from __future__ import annotations

import errno
import platform
import struct
import sys
from collections.abc import Sequence

from .launcher import OWN_PID

# By name: (x86_64, aarch64); None: the architecture hasn't got it. Linux' unistd_64.h and unistd.h (generic).
CALLS: dict[str, tuple[int | None, int | None]] = {
    # other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274),
    "setsid": (112, 157),  # who leaves the group would outlive it
    "setpgid": (109, 154),
    # the network, and sockets of services on this machine (a path's socket is no file to Landlock)
    "socket": (41, 198),
    "socketpair": (53, 199),  # a datagram pair can be sent anywhere
    "io_uring_setup": (425, 425),  # does all of this without system calls
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    # namespaces, mounts
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    # the kernel
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    # System V and POSIX message passing: they outlive the process
    "shmget": (29, 194),
    "shmat": (30, 196),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
}
# Landlock doesn't know these; in bubblewrap the mounts are read-only.
BY_PATH: dict[str, tuple[int | None, int | None]] = {
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "setxattrat": (463, 463),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
}
TRUNCATE: tuple[int | None, int | None] = (76, 45)  # Landlock knows it from ABI 3
OTHERS: dict[str, tuple[int | None, int | None]] = {
    "clone": (56, 220),
    "clone3": (435, 435),
    "fork": (57, None),
    "vfork": (58, None),
    "ioctl": (16, 29),
    "prlimit64": (302, 261),
    "sched_setaffinity": (203, 122),
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
}
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column, AUDIT_ARCH

_CLONE_THREAD = 0x00010000
_CLONE_NEW = 0x7E020000  # every namespace
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C  # put characters into a terminal's input
_X32 = 0x40000000  # x86-64's second table of calls

_LOAD, _EQUAL, _AT_LEAST, _SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL_PROCESS, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data


def supported() -> bool:
    """Whether there is a filter for this machine."""
    return sys.platform == "linux" and sys.byteorder == "little" and platform.machine() in _ARCHITECTURES


def program(*, processes: bool, by_path: bool, truncate: bool = False, signals: bool = False) -> bytes:
    """The filter for this machine; empty if it isn't `supported`.

    Args:
        processes: whether it may start others (compilers do).
        by_path: refuse to change files' modes, owners and times.
        truncate: refuse to truncate a file by its path.
        signals: refuse signals to any process but itself.
    """
    if not supported():
        return b""
    column, architecture = _ARCHITECTURES[platform.machine()]
    refused = {**CALLS, **(BY_PATH if by_path else {}), **({"truncate": TRUNCATE} if truncate else {})}
    if signals:
        refused |= {
            n: OTHERS[n] for n in ("tkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal")
        }
    if not processes:
        refused |= {n: OTHERS[n] for n in ("fork", "vfork")}
    code = [
        _jump(_LOAD, _ARCH),
        _jump(_EQUAL, architecture, 1, 0),
        _jump(_RETURN, _KILL_PROCESS),
        _jump(_LOAD, _NUMBER),
    ]
    if column == 0:
        code += [_jump(_AT_LEAST, _X32, 0, 1), _jump(_RETURN, _KILL_PROCESS)]
    for name in sorted(refused):
        number = refused[name][column]
        if number is not None:
            code += [_jump(_EQUAL, number, 0, 1), _refuse()]

    def call(name: str, checks: Sequence[bytes]) -> list[bytes]:
        """`checks` for one call; they fall through to "allowed"."""
        number = OTHERS[name][column]
        assert number is not None
        return [_jump(_EQUAL, number, 0, len(checks) + 1), *checks, _jump(_RETURN, _ALLOW)]

    code += call("clone3", [_refuse(errno.ENOSYS)])  # its flags are out of a filter's reach; libc falls back
    flags = [_argument(0), _jump(_SET, _CLONE_NEW, 0, 1), _refuse()]
    if not processes:
        flags += [_jump(_SET, _CLONE_THREAD, 1, 0), _refuse()]
    code += call("clone", flags)
    code += call(
        "ioctl", [_argument(1), _jump(_EQUAL, _TIOCSTI, 1, 0), _jump(_EQUAL, _TIOCLINUX, 0, 1), _refuse()]
    )
    for name in ("prlimit64", "sched_setaffinity"):
        code += call(name, [_argument(0), _jump(_EQUAL, 0, 1, 0), _refuse()])
    if signals:
        own = [_jump(_EQUAL, OWN_PID, 1, 0), _refuse()]
        code += call("kill", [_argument(0), _jump(_EQUAL, 0, 2, 0), *own])
        code += call("tgkill", [_argument(0), *own])
    code.append(_jump(_RETURN, _ALLOW))
    return b"".join(code)


def _jump(code: int, k: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, k)


def _refuse(number: int = errno.EPERM) -> bytes:
    return _jump(_RETURN, _ERRNO | number)


def _argument(position: int) -> bytes:
    """Load the low half of an argument."""
    return _jump(_LOAD, _ARGUMENTS + 8 * position)
