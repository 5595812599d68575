"""The same by the command line: whatever fails, an exit code of ours, one sentence, one next step."""

import io
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from unittest.mock import patch

from fallback_tier.cli import exit_codes
from fallback_tier.cli.main import build_parser, main
from tests.campaigns.hostile.audit import maintenance
from tests.campaigns.hostile.audit.trail_folder import TrailFolder
from tests.campaigns.hostile.audit.workloads import Say, Workload
from tests.unit.audit.trails import TEXTS

#: Made once a process, and known to its forks: half of a command's time, and it touches no disk.
_parser = cache(build_parser)


#: What is unpacked lies on the same disk.
SCRATCH = "tmp"


def _ready(trail: TrailFolder) -> None:
    (trail.place / SCRATCH).mkdir(parents=True)
    maintenance.fixes(trail, "a", "b")
    for text in TEXTS.values():  # what the events name: else nothing would verify
        trail.evidence().put(text.encode())


def _commands(trail: TrailFolder, say: Say) -> None:
    signed = ("--by", "A. Keeper", "--because", "a reason")
    out, proof = str(trail.place / "export.jsonl"), str(trail.place / "proof.txt")
    for words in (
        ("checkpoint",),
        ("verify",),
        ("redact", "1", *signed),
        ("export", "--out", out),
        ("verify", out),
        ("import", out),
        ("prove", "3", "--output", proof),
        ("prove", "--check", proof),
        ("keygen", "--rotate", *signed),
        ("show", "a"),
    ):
        _run(trail, say, *words)


def _verify(trail: TrailFolder, say: Say) -> None:
    state = str(trail.place / "verified.json")
    _run(trail, say, "verify", "--since-state", state)
    _run(trail, say, "verify", "--since-state", state)


def _hand_out(trail: TrailFolder, say: Say) -> None:
    """What writes a file that the user named, and what reads one."""
    out, proof = str(trail.place / "export.jsonl"), str(trail.place / "proof.txt")
    for words in (
        ("export", "--with-evidence", "--out", out),
        ("verify", out),
        ("import", out),
        ("prove", "3", "--output", proof),
        ("prove", "--check", proof),
    ):
        _run(trail, say, *words)


def _run(trail: TrailFolder, say: Say, verb: str, *words: str) -> None:
    reported, complained = io.StringIO(), io.StringIO()
    imports = verb == "import"  # a record is never mixed with another
    state = trail.place / "imported" if imports else trail.state
    checkpoints = state / "checkpoints" if imports else trail.place / "checkpoints"
    where = ("--state-dir", str(state), "--checkpoints", str(checkpoints))
    keys = ("--keys", str(trail.keys))
    once = patch("fallback_tier.cli.main.build_parser", _parser)
    there = patch("tempfile.tempdir", str(trail.place / SCRATCH))
    with once, there, redirect_stdout(reported), redirect_stderr(complained):
        code = main(["audit", verb, *words, *where, *keys])
    if code == exit_codes.OK:
        return
    reads_a_file = verb in ("verify", "import") or "--check" in words
    if code == exit_codes.BAD_INPUT and reads_a_file and not Path(words[-1]).exists():
        return  # there is no such file: the command before it said why
    # Nothing is damaged by a disk that fails, and nothing of it is called damaged.
    assert code == exit_codes.ENVIRONMENT, (
        f"audit {verb} ended with {code}: {complained.getvalue()}{reported.getvalue()}"
    )
    if not reported.getvalue():  # else it is a report, which tells by itself
        sentence, _, rest = complained.getvalue().rpartition("  next: ")
        assert "fallback-tier: " in sentence, complained.getvalue()
        assert rest.count("\n") == 1, complained.getvalue()
    assert "Traceback" not in complained.getvalue(), complained.getvalue()
    say(f"refused by audit {verb}, exit code {code}")


COMMANDS = Workload("by command", _ready, _commands)

#: Parts of them, small enough to let each of their calls fail in a test.
VERIFYING = Workload("audit verify", _ready, _verify)
HANDING_OUT = Workload("files of the user's", _ready, _hand_out)
