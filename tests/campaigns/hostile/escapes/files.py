"""Reading and writing what lies outside."""

import os
from pathlib import Path

from tests.campaigns.hostile.escapes.base import X86, Facts, ShutError, escape, opened, permitted


@escape
def environments(facts: Facts) -> None:
    """Every environment in /proc, the launcher's among them."""
    found = False
    for place in Path("/proc").glob("*/environ"):
        try:
            found |= facts["secret"].encode() in place.read_bytes()
        except OSError:
            continue
    if not found:
        raise ShutError


@escape
def environment_of_pid_1(facts: Facts) -> None:
    if facts["secret"].encode() not in Path("/proc/1/environ").read_bytes():
        raise ShutError


@escape
def memory_of_pid_1(facts: Facts) -> None:
    if not facts["inside"]:  # it is a stranger's: not ours to read
        raise ShutError
    with Path("/proc/1/maps").open() as maps, Path("/proc/1/mem").open("rb") as memory:
        for line in maps:
            if "[stack]" in line or "[heap]" in line:
                start, end = (int(part, 16) for part in line.split()[0].split("-"))
                memory.seek(start)
                if facts["secret"].encode() in memory.read(end - start):
                    return
    raise ShutError


@escape
def processes_of_the_machine(facts: Facts) -> None:
    marks = (place.read_bytes() for place in Path("/proc").glob("[0-9]*/cmdline"))
    if not any(facts["bystander_mark"].encode() in mark for mark in marks):
        raise ShutError


@escape
def signal_to_a_process_of_the_machine(facts: Facts) -> None:
    os.kill(facts["bystander"], 0)


@escape
def root_through_pid_1(facts: Facts) -> None:
    opened("/proc/1/root" + facts["private"], os.O_RDONLY)


@escape
def inherited_descriptors(facts: Facts) -> None:
    for entry in Path("/proc/self/fd").iterdir():
        try:
            if facts["private"] in str(entry.readlink()):
                return
        except OSError:
            continue
    raise ShutError


@escape
def kernel_memory(facts: Facts) -> None:
    opened("/proc/kcore", os.O_RDONLY)


@escape
def kernel_log(facts: Facts) -> None:
    permitted(103 if X86 else 116, 3, 0, -1)


@escape
def the_home_of_the_user(facts: Facts) -> None:
    opened(facts["home"] + "/.credentials", os.O_RDONLY)


@escape
def password_hashes(facts: Facts) -> None:
    opened("/etc/shadow", os.O_RDONLY)


@escape
def a_private_file(facts: Facts) -> None:
    opened(facts["private"], os.O_RDONLY)


@escape
def a_private_file_by_a_relative_path(facts: Facts) -> None:
    opened(os.path.relpath(facts["private"]), os.O_RDONLY)


@escape
def a_private_file_by_a_symlink(facts: Facts) -> None:
    Path("way-out").symlink_to(facts["private"])
    try:
        opened("way-out", os.O_RDONLY)
    finally:
        Path("way-out").unlink()


@escape
def a_private_file_by_a_hard_link(facts: Facts) -> None:
    os.link(facts["private"], "way-out")
    Path("way-out").unlink()


@escape
def a_folder_above_the_worktree(facts: Facts) -> None:
    opened(str(Path(facts["worktree"]).parent / "other-worktree" / "file"), os.O_RDONLY)


@escape
def git_configuration(facts: Facts) -> None:
    opened(".git/config", os.O_WRONLY)


@escape
def git_hook(facts: Facts) -> None:
    opened(".git/hook", os.O_WRONLY | os.O_CREAT)


@escape
def git_folder_replaced(facts: Facts) -> None:
    Path(".git").rename("git")
    Path("git").rename(".git")


@escape
def readable_bind(facts: Facts) -> None:
    opened(facts["readable"], os.O_WRONLY)


@escape
def readable_binds_mode(facts: Facts) -> None:
    Path(facts["readable"]).chmod(0o644)


def _writable(folder: str) -> None:
    if not os.access(folder, os.W_OK):
        raise ShutError


@escape
def system_folder(facts: Facts) -> None:
    _writable("/usr")


@escape
def configuration_folder(facts: Facts) -> None:
    _writable("/etc")


@escape
def device_folder(facts: Facts) -> None:
    _writable("/dev")


@escape
def root_folder(facts: Facts) -> None:
    _writable("/")


@escape
def control_groups(facts: Facts) -> None:
    list(Path("/sys/fs/cgroup").iterdir())


@escape
def sys_folder(facts: Facts) -> None:
    list(Path("/sys/kernel").iterdir())


@escape
def sysctl_host_name(facts: Facts) -> None:
    opened("/proc/sys/kernel/hostname", os.O_WRONLY)


@escape
def sysctl_core_pattern(facts: Facts) -> None:
    opened("/proc/sys/kernel/core_pattern", os.O_WRONLY)


@escape
def system_request_key(facts: Facts) -> None:
    opened("/proc/sysrq-trigger", os.O_WRONLY)


@escape
def interrupts(facts: Facts) -> None:
    opened("/proc/irq/default_smp_affinity", os.O_WRONLY)


@escape
def user_id_map(facts: Facts) -> None:
    opened("/proc/self/uid_map", os.O_WRONLY)


@escape
def setuid_file_left_in_the_worktree(facts: Facts) -> None:
    _changed_to(0o4755)


@escape
def setuid_file_made_so(facts: Facts) -> None:
    _made_with(0o4755)


@escape
def setgid_file_left_in_the_worktree(facts: Facts) -> None:
    _changed_to(0o2755)


@escape
def setgid_file_made_so(facts: Facts) -> None:
    _made_with(0o2755)


def _changed_to(mode: int) -> None:
    Path("privileged").touch()
    try:
        Path("privileged").chmod(mode)
    finally:
        Path("privileged").unlink()


def _made_with(mode: int) -> None:
    try:
        os.close(os.open("privileged", os.O_WRONLY | os.O_CREAT, mode))
    finally:
        Path("privileged").unlink(missing_ok=True)


@escape
def file_of_another_user(facts: Facts) -> None:
    os.chown(".", 12345, 12345)
    os.chown(".", os.geteuid(), os.getegid())
