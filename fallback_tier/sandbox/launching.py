"""The limits of a target's command, and the two small shells that put it behind them."""

from collections.abc import Sequence
from pathlib import Path

#: A command's log. A public suite of 16,000 tests, 650 of them red, prints 2.2 MB; of a flood, the middle
#: is left out, and then nothing is told by what is left. Bytes that are no text become three each: 12 MiB,
#: where the record takes 16 (``MAX_EVIDENCE_BYTES``).
MAX_OUTPUT_BYTES = 4 * 1024 * 1024

#: One file, in the 512-byte blocks of POSIX's ulimit: 1 GiB (bash counts 1,024-byte blocks: 2 GiB).
MAX_FILE_BLOCKS = 2 * 1024 * 1024

#: Private writable memory of one process. RLIMIT_DATA, not RLIMIT_AS: V8 reserves tens of gigabytes
#: of address space that it never touches.
MAX_DATA_KIB = 8 * 1024 * 1024

#: The same for all processes of a command together, and for what they share: a cgroup.
MAX_MEMORY_BYTES = MAX_DATA_KIB * 1024

#: Processes and threads of one command: RLIMIT_NPROC (counted for each user namespace since Linux
#: 5.14, before that for the user's other sessions too), for root a cgroup.
MAX_PROCESSES = 4096

#: Stacks of as many threads, KiB: the private memory of a process has all of each (8 MiB), used or not. A
#: public suite that leaves 1,000 threads behind used 300 MB, and was ended at 8 GiB.
THREAD_STACKS_KIB = MAX_PROCESSES * 8 * 1024

#: CPU seconds of one process for each second of wall clock: room for a few threads.
_CPU_SHARE = 4

#: Outside: joins the cgroups by their files, then becomes bubblewrap. What can't join is not started.
_JOINER = """while [ "$1" != -- ]; do echo 0 >"$1" || exit; shift; done
shift; exec "$@"
"""

#: Inside: sets the limits, then becomes the command. The first line of
#: output says that the sandbox stands and the command is next; without it, what was printed is a
#: complaint of what comes before. A limit that is lower already stays as it is; dash calls the
#: process limit -p, bash -u.
_LAUNCHER = f"""printf '%s\\n' "$1"
{{ ulimit -c 0; ulimit -f {MAX_FILE_BLOCKS}; ulimit -d "$4"
ulimit -t "$2"; ulimit -u "$3" || ulimit -p "$3"; }} 2>/dev/null
shift 4; exec "$@"
"""


def data_kib(*, in_cgroup: bool) -> int:
    """Private memory of one process: with room for stacks only where a cgroup bounds what is used."""
    return MAX_DATA_KIB + THREAD_STACKS_KIB if in_cgroup else MAX_DATA_KIB


def launched(
    argv: Sequence[str], nonce: str, timeout_s: float, processes: int, data: int = MAX_DATA_KIB
) -> list[str]:
    """The command behind its limits; ``nonce`` is the first line of what is printed; ``data``: KiB."""
    limits = (int(timeout_s * _CPU_SHARE) + 1, processes, data)
    return ["/bin/sh", "-c", _LAUNCHER, "sh", nonce, *map(str, limits), *argv]


def joined(members: Sequence[Path], argv: Sequence[str]) -> list[str]:
    """A program that first joins cgroups, by their files; the program itself where there are none."""
    if not members:
        return [*argv]
    return ["/bin/sh", "-c", _JOINER, "sh", *map(str, members), "--", *argv]
