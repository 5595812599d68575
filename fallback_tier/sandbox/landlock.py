"""Landlock, a second barrier inside the sandbox: it limits what may be written, whatever else is mounted.

It holds even if a mount or a namespace has a bug: nothing outside the named folders can be changed, no
device node created, no process outside signalled, no file system mounted (landlock(7)). A domain may not
mount, so it is entered inside, after bubblewrap's mounts and before the command. No tool that every system
has can do that (setpriv can from util-linux 2.40 on), and Python makes a sandbox's start half as long again
(ADR-0069 has the figures). Perl has ``syscall`` built in, is part of Debian's base system and of git's full
package, and starts in 2 ms. It is optional: without it there is no second barrier, and the record of a fix
says so.
"""

import os
from collections.abc import Sequence

#: The same on every architecture that has a seccomp filter here (linux/landlock.h).
_CREATE_RULESET = 444
_ASK_VERSION = 1

# LANDLOCK_ACCESS_FS_*, by bit.
_EXECUTE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_BLOCK, _IOCTL_DEV = 1 << 6, 1 << 11, 1 << 15
_READ = _EXECUTE | _READ_FILE | _READ_DIR

#: The number of file access bits, and of bytes of struct landlock_ruleset_attr, in each version of the
#: interface: 2 moved files between folders, 3 truncate, 4 TCP, 5 ioctl, 6 scopes.
_BITS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_BYTES = {1: 8, 2: 8, 3: 8, 4: 16, 5: 16}
_ALL_BITS, _ALL_BYTES = 16, 24

#: LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | LANDLOCK_SCOPE_SIGNAL.
_SCOPES = 3

#: Arguments: handled rights, scopes, size of the attribute, flags of open, then ``rights:folder`` for each
#: rule, ``--``, the command. Numbers are converted to numbers: syscall passes strings by address.
_ENTER = """
my ($handled, $scopes, $size, $flags) = map { $_ + 0 } splice @ARGV, 0, 4;
my $attribute = pack 'QQQ', $handled, 0, $scopes;
my $rules = syscall 444, $attribute, $size, 0;
die "landlock_create_ruleset: $!\\n" if $rules < 0;
while (($_ = shift) ne '--') {
    my ($rights, $folder) = split /:/, $_, 2;
    sysopen my $place, $folder, $flags or die "$folder: $!\\n";
    my $rule = pack 'Ql', $rights, fileno $place;
    syscall(445, $rules, 1, $rule, 0) == 0 or die "landlock_add_rule $folder: $!\\n";
}
syscall(446, $rules, 0) == 0 or die "landlock_restrict_self: $!\\n";
exec { $ARGV[0] } @ARGV or die "$ARGV[0]: $!\\n";
"""

PERL = "/usr/bin/perl"


def landlock_version() -> int:
    """Return the version of the kernel's interface; 0: none, or not enabled."""
    import ctypes

    try:
        syscall = ctypes.CDLL(None).syscall
    except (OSError, AttributeError, TypeError):  # no libc: not Linux
        return 0
    return max(0, int(syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _ASK_VERSION)))


def landlock_in_words(version: int, perl: str = PERL) -> str:
    """Return, for the record of a fix, what holds and, if nothing does, whether Perl is missing."""
    if version:
        return f"Landlock {version}"
    return "no Landlock" if os.access(perl, os.X_OK) else "no Landlock (Perl is not installed)"


def landlocked(version: int, writable: Sequence[str]) -> list[str]:
    """Return what to put before a command: it may read everything, and change ``writable`` folders only.

    ``version`` is at least 1. The command must already have given up new privileges (PR_SET_NO_NEW_PRIVS),
    as bubblewrap ensures. If a step fails, the command is not started.
    """
    handled = (1 << _BITS.get(version, _ALL_BITS)) - 1
    rights = handled & ~(_MAKE_CHAR | _MAKE_BLOCK | _IOCTL_DEV)
    rules = {"/": _READ} | dict.fromkeys(writable, rights)
    if "/dev" in rules:
        rules["/dev"] |= handled & _IOCTL_DEV
    size = _BYTES.get(version, _ALL_BYTES)
    scopes = _SCOPES if size == _ALL_BYTES else 0
    numbers = (handled, scopes, size, os.O_PATH | os.O_CLOEXEC)
    rule_arguments = [f"{right}:{folder}" for folder, right in rules.items()]
    return [PERL, "-e", _ENTER, *map(str, numbers), *rule_arguments, "--"]
