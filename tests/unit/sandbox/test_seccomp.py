"""The filter's program, run by a small interpreter of classic BPF: no kernel needed."""

import errno
import os
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_tier.sandbox.seccomp import seccomp_file, seccomp_program

ALLOW = "allow"
X86, ARM = 0xC000003E, 0xC00000B7


def decide(program: bytes, number: int, arch: int, *arguments: int) -> str:
    """What the kernel would do with one call (linux/filter.h, the five instructions we use)."""
    data = struct.pack("<IIQ6Q", number, arch, 0, *(*arguments, *[0] * 6)[:6])
    code = list(struct.iter_unpack("<HBBI", program))
    position = accumulator = 0
    while True:
        operation, if_true, if_false, operand = code[position]
        position += 1
        match operation:
            case 0x20:
                (accumulator,) = struct.unpack_from("<I", data, operand)
            case 0x15:
                position += if_true if accumulator == operand else if_false
            case 0x35:
                position += if_true if accumulator >= operand else if_false
            case 0x45:
                position += if_true if accumulator & operand else if_false
            case 0x06:
                if operand == 0x7FFF0000:
                    return ALLOW
                assert operand & 0xFFFF0000 == 0x00050000
                return errno.errorcode[operand & 0xFFFF]
            case _:
                raise AssertionError(f"unknown instruction {operation:#x}")


def program(machine: str) -> bytes:
    made = seccomp_program(machine)
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("machine", "arch", "calls"),
    [
        ("x86_64", X86, {"read": 0, "openat": 257, "execve": 59, "futex": 202, "statx": 332}),
        ("aarch64", ARM, {"read": 63, "openat": 56, "execve": 221, "futex": 98, "statx": 291}),
    ],
)
def test_ordinary_calls_are_allowed(machine: str, arch: int, calls: dict[str, int]) -> None:
    for number in calls.values():
        assert decide(program(machine), number, arch) == ALLOW


@pytest.mark.parametrize(
    ("machine", "arch", "numbers"),
    [
        ("x86_64", X86, [101, 165, 250, 272, 308, 321, 323, 425, 426, 427, 438, 155]),
        ("aarch64", ARM, [117, 40, 219, 97, 268, 280, 282, 425, 426, 427, 438, 41]),
    ],
)
def test_dangerous_calls_are_denied(machine: str, arch: int, numbers: list[int]) -> None:
    for number in numbers:
        assert decide(program(machine), number, arch) == "EPERM"


@pytest.mark.parametrize(
    ("machine", "arch", "clone", "socket"), [("x86_64", X86, 56, 41), ("aarch64", ARM, 220, 198)]
)
def test_calls_are_judged_by_their_arguments(
    machine: str, arch: int, clone: int, socket: int
) -> None:
    made = program(machine)
    assert decide(made, 435, arch) == "ENOSYS"  # clone3: libc falls back to clone
    assert decide(made, clone, arch, 0x3D0F00) == ALLOW  # pthread_create's flags
    for bit in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert decide(made, clone, arch, bit | 17) == "EPERM"
    for family in (1, 2, 10, 16):
        assert decide(made, socket, arch, family) == ALLOW
    for family in (0, 17, 38, 40, 44):
        assert decide(made, socket, arch, family) == "EAFNOSUPPORT"


def test_foreign_call_tables_are_denied() -> None:
    assert decide(program("x86_64"), 1, 0x40000003) == "ENOSYS"  # i386
    assert decide(program("x86_64"), 0x40000000 | 101, X86) == "ENOSYS"  # x32
    assert decide(program("aarch64"), 63, X86) == "ENOSYS"


def test_an_unknown_machine_has_no_filter() -> None:
    assert seccomp_program("riscv64") is None


def test_the_file_is_read_from_its_start() -> None:
    made = program("x86_64")
    descriptor = seccomp_file(made)
    try:
        assert os.read(descriptor, len(made) + 1) == made
    finally:
        os.close(descriptor)


CALLS = {
    "x86_64": {
        "ioctl": 16, "fchmod": 91, "personality": 135, "openat": 257, "mknodat": 259,
        "fchmodat": 268, "fchmodat2": 452,
    },
    "aarch64": {
        "ioctl": 29, "fchmod": 52, "personality": 92, "openat": 56, "mknodat": 33,
        "fchmodat": 53, "fchmodat2": 452,
    },
}  # fmt: skip


@pytest.mark.parametrize(("machine", "arch"), [("x86_64", X86), ("aarch64", ARM)])
@pytest.mark.parametrize(
    ("name", "arguments", "decision"),
    [
        ("personality", (0,), ALLOW),
        ("personality", (0xFFFFFFFF,), ALLOW),
        ("personality", (0x0040000,), "EPERM"),
        ("ioctl", (0, 0x5401), ALLOW),  # TCGETS
        ("ioctl", (0, 0x5412), "EPERM"),  # TIOCSTI
        ("ioctl", (0, 0x1_0000_5412), "EPERM"),  # the kernel looks at the low half alone
        ("ioctl", (0, 0x541C), "EPERM"),  # TIOCLINUX
        ("fchmod", (3, 0o1775), ALLOW),
        ("fchmod", (3, 0o2775), "EPERM"),
        ("fchmod", (3, 0o4755), "EPERM"),
        ("fchmodat", (3, 0, 0o755), ALLOW),
        ("fchmodat", (3, 0, 0o6755), "EPERM"),
        ("fchmodat2", (3, 0, 0o4000), "EPERM"),
        ("fchmodat2", (3, 0, 0o2000), "EPERM"),
        ("openat", (3, 0, 0o101, 0o644), ALLOW),
        ("openat", (3, 0, 0o101, 0o4755), "EPERM"),
        ("openat", (3, 0, 0o101, 0o2755), "EPERM"),
        ("mknodat", (3, 0, 0o010644), ALLOW),  # a FIFO
        ("mknodat", (3, 0, 0o020666), ALLOW),  # a device: not this rule's business
        ("mknodat", (3, 0, 0o104755), "EPERM"),
        ("mknodat", (3, 0, 0o102755), "EPERM"),
    ],
)
def test_terminals_personalities_and_files_that_set_an_id(
    machine: str, arch: int, name: str, arguments: tuple[int, ...], decision: str
) -> None:
    assert decide(program(machine), CALLS[machine][name], arch, *arguments) == decision


@pytest.mark.parametrize("bit", [0o4000, 0o2000])
@pytest.mark.parametrize(
    ("number", "arguments"),
    [(2, (0, 0o101, 0o755)), (85, (0, 0o755)), (90, (0, 0o755)), (133, (0, 0o100755))],
)
def test_the_older_calls_of_x86_leave_no_file_that_sets_an_id(
    number: int, arguments: tuple[int, ...], bit: int
) -> None:
    made, (*first, mode) = program("x86_64"), arguments
    assert decide(made, number, X86, *first, mode | bit) == "EPERM"
    assert decide(made, number, X86, *arguments) == ALLOW


@pytest.mark.parametrize(("machine", "arch"), [("x86_64", X86), ("aarch64", ARM)])
def test_paths_by_pointer_are_left_to_openat(machine: str, arch: int) -> None:
    assert decide(program(machine), 437, arch) == "ENOSYS"


@pytest.mark.parametrize(("machine", "arch"), [("x86_64", X86), ("aarch64", ARM)])
@given(number=st.integers(0, 1000), arguments=st.lists(st.integers(0, 2**64 - 1), max_size=6))
def test_every_call_is_decided(machine: str, arch: int, number: int, arguments: list[int]) -> None:
    """No jump leads out of the program, none into the middle of another rule's decision."""
    assert decide(program(machine), number, arch, *arguments) in {
        ALLOW, "EPERM", "ENOSYS", "EAFNOSUPPORT",
    }  # fmt: skip
