"""A small seccomp filter for the sandbox: a deny-list of what namespaces don't cover.

Assembled here (classic BPF, seccomp(2)), because bubblewrap takes the compiled program through a file
descriptor, and a library for thirty instructions would be one more dependency to trust. It supplements the
namespaces: kernel interfaces with a long history of escapes (io_uring, keyrings, bpf, userfaultfd),
tracing, mounting, and address families that a network namespace does not isolate (AF_VSOCK reaches the
hypervisor). Tracing of children is denied too: programs that need it (strace, gdb, LeakSanitizer) are not
part of a package's test suite, and ptrace has its own history of escapes.
"""

import errno
import os
import struct
from dataclasses import dataclass

# linux/bpf_common.h, linux/seccomp.h
_LOAD = 0x20
_JUMP_EQUAL = 0x15
_JUMP_AT_LEAST = 0x35
_JUMP_ANY_BIT = 0x45
_RETURN = 0x06
_ALLOW = 0x7FFF0000
_DENY = 0x00050000

#: Offsets in struct seccomp_data (both architectures are little-endian).
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16

#: x86_64 only: the x32 ABI reaches the same calls under other numbers (asm/unistd.h).
_X32_BIT = 0x40000000

#: CLONE_NEW* of clone(2): every namespace flag that its argument can carry.
_NEW_NAMESPACES = 0x7E020000

#: Numbers of the two architectures; None if one has no such call. Denied with EPERM.
_DENIED: dict[str, tuple[int | None, int | None]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "migrate_pages": (256, 238),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_pages": (279, 239),
    "move_mount": (429, 429),
    "name_to_handle_at": (303, 264),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "perf_event_open": (298, 241),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}

#: clone3, openat2: a filter can't see their flags, which are behind a pointer. With ENOSYS callers fall
#: back to clone and openat.
_BY_POINTER = (435, 437)


@dataclass(frozen=True)
class _Argument:
    """A call that is allowed or denied by the low half of one argument (counted from 0)."""

    numbers: tuple[int | None, int | None]
    index: int
    error: int
    allowed: tuple[int, ...] = ()
    denied: tuple[int, ...] = ()
    denied_bits: int = 0


#: AF_UNIX, AF_INET, AF_INET6, AF_NETLINK: families that a network namespace isolates and programs need.
_FAMILIES = (1, 2, 10, 16)

#: PER_LINUX, and the query of the current one: no other is needed here, and each is rarely executed code
#: (ADDR_NO_RANDOMIZE would disable a defence of the target).
_PERSONALITIES = (0, 0xFFFFFFFF)

#: TIOCSTI, TIOCLINUX: they type into the controlling terminal (CVE-2017-5226).
_TERMINAL_INPUT = (0x5412, 0x541C)

#: A worktree outlives its sandbox: a setuid or setgid file in it would be a program of root, or of root's
#: group, for any user of the machine who can reach it. A folder may not be made setgid either: a filter
#: can't tell what a path refers to.
_SET_ID = 0o6000
_MODES: tuple[tuple[tuple[int | None, int | None], int], ...] = (
    ((90, None), 1),  # chmod
    ((91, 52), 1),  # fchmod
    ((268, 53), 2),  # fchmodat
    ((452, 452), 2),  # fchmodat2
    ((85, None), 1),  # creat
    ((2, None), 2),  # open
    ((257, 56), 3),  # openat
    ((133, None), 1),  # mknod
    ((259, 33), 2),  # mknodat
)

_BY_ARGUMENT = (
    _Argument((41, 198), 0, errno.EAFNOSUPPORT, allowed=_FAMILIES),  # socket
    _Argument((135, 92), 0, errno.EPERM, allowed=_PERSONALITIES),  # personality
    _Argument((16, 29), 1, errno.EPERM, denied=_TERMINAL_INPUT),  # ioctl
    *(_Argument(numbers, index, errno.EPERM, denied_bits=_SET_ID) for numbers, index in _MODES),
)


@dataclass(frozen=True)
class _Architecture:
    column: int
    audit: int
    clone: int
    x32: bool


_ARCHITECTURES = {
    "x86_64": _Architecture(column=0, audit=0xC000003E, clone=56, x32=True),
    "aarch64": _Architecture(column=1, audit=0xC00000B7, clone=220, x32=False),
}


def seccomp_program(machine: str) -> bytes | None:
    """Return the filter for ``os.uname().machine``, in the format of bubblewrap's ``--seccomp``.

    None if the architecture's numbers are not known here: the sandbox then relies on namespaces alone.
    """
    architecture = _ARCHITECTURES.get(machine)
    return None if architecture is None else b"".join(_instructions(architecture))


def seccomp_file(program: bytes) -> int:
    """Return an anonymous file with the program, positioned at its start. The caller closes it."""
    descriptor = os.memfd_create("seccomp")
    os.write(descriptor, program)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _instructions(arch: _Architecture) -> list[bytes]:
    code = [_load(_ARCH), _op(_JUMP_EQUAL, arch.audit, 1, 0), _deny(errno.ENOSYS), _load(_NUMBER)]
    if arch.x32:
        code += [_op(_JUMP_AT_LEAST, _X32_BIT, 0, 1), _deny(errno.ENOSYS)]
    for call in _BY_POINTER:
        code += [_op(_JUMP_EQUAL, call, 0, 1), _deny(errno.ENOSYS)]
    for numbers in _DENIED.values():
        number = numbers[arch.column]
        if number is not None:
            code += [_op(_JUMP_EQUAL, number, 0, 1), _deny(errno.EPERM)]
    # clone: any namespace flag is denied; every other clone (threads, fork) is allowed.
    code += [_op(_JUMP_EQUAL, arch.clone, 0, 4), _load(_ARGUMENTS)]
    code += [_op(_JUMP_ANY_BIT, _NEW_NAMESPACES, 0, 1), _deny(errno.EPERM), _op(_RETURN, _ALLOW)]
    for rule in _BY_ARGUMENT:
        code += _by_argument(rule, arch)
    return [*code, _op(_RETURN, _ALLOW)]


def _by_argument(rule: _Argument, arch: _Architecture) -> list[bytes]:
    """Return instructions for this call: load the argument, compare, return. Other calls skip them."""
    number = rule.numbers[arch.column]
    if number is None:
        return []
    allow, deny = _op(_RETURN, _ALLOW), _deny(rule.error)
    body = [_load(_ARGUMENTS + 8 * rule.index)]
    if rule.denied_bits:
        body += [_op(_JUMP_ANY_BIT, rule.denied_bits, 0, 1), deny, allow]
    else:
        values = rule.allowed or rule.denied
        for remaining, value in zip(range(len(values), 0, -1), values, strict=True):
            body.append(_op(_JUMP_EQUAL, value, remaining, 0))
        body += [deny, allow] if rule.allowed else [allow, deny]
    return [_op(_JUMP_EQUAL, number, 0, len(body)), *body]


def _load(offset: int) -> bytes:
    return _op(_LOAD, offset)


def _deny(error: int) -> bytes:
    return _op(_RETURN, _DENY | error)


def _op(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """Return a struct sock_filter (linux/filter.h): jumps count instructions after the next one."""
    return struct.pack("<HBBI", code, if_true, if_false, operand)
