"""The limits of a target's command, and the two small shell scripts that apply them."""

from collections.abc import Sequence
from pathlib import Path

#: The limit of a command's log. A public suite of 16,000 tests, 650 of them failing, prints 2.2 MB; of a
#: longer log the middle is left out, and then the rest proves nothing. Bytes that are not text become three
#: each: 12 MiB, and the record takes 16 (``MAX_EVIDENCE_BYTES``).
MAX_OUTPUT_BYTES = 4 * 1024 * 1024

#: The limit of one file, in the 512-byte blocks of POSIX's ulimit: 1 GiB (bash counts 1,024-byte blocks: 2
#: GiB).
MAX_FILE_BLOCKS = 2 * 1024 * 1024

#: The limit of private writable memory of one process. RLIMIT_DATA, not RLIMIT_AS: V8 reserves tens of
#: gigabytes of address space that it never touches.
MAX_DATA_KIB = 8 * 1024 * 1024

#: The same for all processes of a command together, and for what they share: a cgroup.
MAX_MEMORY_BYTES = MAX_DATA_KIB * 1024

#: The limit of processes and threads of one command: RLIMIT_NPROC (counted per user namespace since Linux
#: 5.14, before that also for the user's other sessions), for root a cgroup.
MAX_PROCESSES = 4096

#: Stacks of as many threads, KiB: all of each (8 MiB) counts as private memory of a process, used or not. A
#: public suite that leaves 1,000 threads running used 300 MB, and was ended at 8 GiB.
THREAD_STACKS_KIB = MAX_PROCESSES * 8 * 1024

#: CPU seconds of one process per second of wall clock: enough for a few threads.
_CPU_SHARE = 4

#: Outside: joins the cgroups by their files, then is replaced by bubblewrap. A process that can't join does
#: not start it.
_JOINER = """while [ "$1" != -- ]; do echo 0 >"$1" || exit; shift; done
shift; exec "$@"
"""

#: Inside: sets the limits, then is replaced by the command. The first line of output says that the sandbox
#: works and the command is next; without it, the output is an error message of an earlier step. A lower
#: limit stays; dash calls the process limit -p, bash -u.
_LAUNCHER = f"""printf '%s\\n' "$1"
{{ ulimit -c 0; ulimit -f {MAX_FILE_BLOCKS}; ulimit -d "$4"
ulimit -t "$2"; ulimit -u "$3" || ulimit -p "$3"; }} 2>/dev/null
shift 4; exec "$@"
"""


def data_kib(*, in_cgroup: bool) -> int:
    """Return the private memory of one process: with room for stacks only if a cgroup limits the use."""
    return MAX_DATA_KIB + THREAD_STACKS_KIB if in_cgroup else MAX_DATA_KIB


def launched(
    argv: Sequence[str], nonce: str, timeout_s: float, processes: int, data: int = MAX_DATA_KIB
) -> list[str]:
    """Return the command with its limits. ``nonce`` becomes the first line of output; ``data``: KiB."""
    limits = (int(timeout_s * _CPU_SHARE) + 1, processes, data)
    return ["/bin/sh", "-c", _LAUNCHER, "sh", nonce, *map(str, limits), *argv]


def joined(members: Sequence[Path], argv: Sequence[str]) -> list[str]:
    """Return a program that first joins cgroups by their files, or the program itself if there are none."""
    if not members:
        return [*argv]
    return ["/bin/sh", "-c", _JOINER, "sh", *map(str, members), "--", *argv]
