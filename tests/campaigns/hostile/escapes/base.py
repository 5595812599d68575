"""What an escape is, and what they are made of."""

import ctypes
import errno
import os
import platform
from collections.abc import Callable
from typing import Any

Facts = dict[str, Any]
Escape = Callable[[Facts], object]

LIBC = ctypes.CDLL(None, use_errno=True)
X86 = platform.machine() == "x86_64"
BAD = ctypes.c_long(-1)

#: All of them, by name.
ESCAPES: dict[str, Escape] = {}


class ShutError(OSError):
    """The way is closed, and the system does not say so with an error."""


def escape(function: Escape) -> Escape:
    """Enter it under its name."""
    ESCAPES[function.__name__] = function
    return function


def call(number: int, *arguments: Any) -> int:
    """A system call. Raises OSError."""
    ctypes.set_errno(0)
    given = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    result = int(LIBC.syscall(ctypes.c_long(number), *given))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def permitted(number: int, *arguments: Any) -> None:
    """Does the kernel let the call pass, to refuse its arguments? Raises OSError where not."""
    refusals = {errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EAFNOSUPPORT}
    try:
        call(number, *(arguments or (BAD,) * 6))
    except OSError as error:
        if error.errno in refusals:
            raise


def opened(path: str, flags: int) -> None:
    os.close(os.open(path, flags))
