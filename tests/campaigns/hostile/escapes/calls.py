"""System calls that a target has no use for."""

import ctypes
import errno
import fcntl
import os
import pty
import signal
import stat
import struct
from pathlib import Path
from typing import Any

from tests.campaigns.hostile.escapes.base import (
    ESCAPES,
    X86,
    Escape,
    Facts,
    call,
    escape,
    permitted,
)

#: Arguments that no call accepts; where -1 throughout is not such, or would wait, others.
CALLS: dict[str, tuple[int | None, int | None, tuple[Any, ...]]] = {
    "io_uring_setup": (425, 425, ()),
    "add_key": (248, 217, ()),
    "keyctl": (250, 219, (0, -1, 0)),
    "request_key": (249, 218, ()),
    "bpf": (321, 280, ()),
    "userfaultfd": (323, 282, ()),
    "perf_event_open": (298, 241, ()),
    "process_vm_readv": (310, 270, (1, 0, 0, 0, 0, -1)),
    "process_vm_writev": (311, 271, (1, 0, 0, 0, 0, -1)),
    "process_madvise": (440, 440, ()),
    "pidfd_getfd": (438, 438, ()),
    "kcmp": (312, 272, (-1, -1, 99)),
    "setns": (308, 268, ()),
    "mount": (165, 40, (0, -1, 0, 0, 0)),
    "umount2": (166, 39, ()),
    "pivot_root": (155, 41, ()),
    "move_mount": (429, 429, ()),
    "fsopen": (430, 430, ()),
    "fsconfig": (431, 431, ()),
    "fsmount": (432, 432, ()),
    "fspick": (433, 433, ()),
    "open_tree": (428, 428, ()),
    "mount_setattr": (442, 442, ()),
    "name_to_handle_at": (303, 264, ()),
    "open_by_handle_at": (304, 265, ()),
    "openat2": (437, 437, ()),
    "kexec_load": (246, 104, (0, 99, 0, -1)),
    "kexec_file_load": (320, 294, ()),
    "init_module": (175, 105, (0, 0, 0)),
    "finit_module": (313, 273, ()),
    "delete_module": (176, 106, (0, 0)),
    "settimeofday": (164, 170, (1, 0)),
    "clock_settime": (227, 112, (99, 1)),
    "adjtimex": (159, 171, (1,)),
    "sethostname": (170, 161, (0, -1)),
    "setdomainname": (171, 162, (0, -1)),
    "swapon": (167, 224, (0, 0)),
    "swapoff": (168, 225, (0,)),
    "quotactl": (179, 60, (-1, 0, 0, 0)),
    "acct": (163, 89, (1,)),
    "fanotify_init": (300, 262, ()),
    "move_pages": (279, 239, (1, 0, 0, 0, 0, -1)),
    "migrate_pages": (256, 238, (1, 99, 0, 0)),
    "modify_ldt": (154, None, (99, 0, 0)),
    "iopl": (172, None, (0,)),
    "ioperm": (173, None, (0, 0, 0)),
}

#: CLONE_NEW*.
NAMESPACES = {
    "user": 0x10000000,
    "mount": 0x00020000,
    "process": 0x20000000,
    "network": 0x40000000,
    "name": 0x04000000,
    "message": 0x08000000,
    "control_group": 0x02000000,
}


@escape
def namespace_by_clone(facts: Facts) -> None:
    child = call(56 if X86 else 220, NAMESPACES["user"] | signal.SIGCHLD, 0, 0, 0, 0)
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


@escape
def namespace_by_clone3(facts: Facts) -> None:
    arguments = ctypes.create_string_buffer(
        struct.pack("11Q", NAMESPACES["user"], 0, 0, 0, signal.SIGCHLD, *[0] * 6)
    )
    child = call(435, ctypes.byref(arguments), 88)
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


@escape
def change_root(facts: Facts) -> None:
    os.chroot("/")


@escape
def trace_me(facts: Facts) -> None:
    call(101 if X86 else 117, 0, 0, 0, 0)


@escape
def trace_the_launcher(facts: Facts) -> None:
    """PTRACE_SEIZE of the process that started all this; the kernel lets go when we end."""
    call(101 if X86 else 117, 0x4206, facts["bystander"], 0, 0)


@escape
def trace_a_sibling(facts: Facts) -> None:
    child = os.fork()
    if child == 0:
        signal.pause()
    try:
        call(101 if X86 else 117, 0x4206, child, 0, 0)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@escape
def no_address_randomisation(facts: Facts) -> None:
    call(135 if X86 else 92, 0x0040000)


@escape
def x32_calls(facts: Facts) -> None:
    call(0x40000000 | 39)


@escape
def typing_into_the_terminal(facts: Facts) -> None:
    """In a terminal of its own; a kernel without the call answers EIO, a filter EPERM."""
    _, terminal = pty.openpty()
    try:
        fcntl.ioctl(terminal, 0x5412, b"x")
    except OSError as error:
        if error.errno == errno.EPERM:
            raise


@escape
def device_node(facts: Facts) -> None:
    """A second /dev/null."""
    os.mknod("node", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    Path("node").unlink()


def _permitted(number: int, arguments: tuple[Any, ...]) -> Escape:
    return lambda _: permitted(number, *arguments)


def _unshared(flag: int) -> Escape:
    return lambda _: call(272 if X86 else 97, flag)


for _name, (_x86, _arm, _arguments) in CALLS.items():
    if (_number := _x86 if X86 else _arm) is not None:
        ESCAPES[f"call_{_name}"] = _permitted(_number, _arguments)
for _name, _flag in NAMESPACES.items():
    ESCAPES[f"unshare_{_name}"] = _unshared(_flag)
