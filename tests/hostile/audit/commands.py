"""The same by the command line: whatever fails, an exit code of ours, one sentence, one next step."""

import io
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from unittest.mock import patch

from fallback_tier.cli import exit_codes
from fallback_tier.cli.main import build_parser, main
from tests.hostile.audit import upkeep
from tests.hostile.audit.house import House
from tests.hostile.audit.workloads import Say, Workload
from tests.unit.audit.trails import TEXTS

#: Made once a process, and known to its forks: half of a command's time, and it touches no disk.
_parser = cache(build_parser)


def _ready(house: House) -> None:
    upkeep.fixes(house, "a", "b")
    for text in TEXTS.values():  # what the events name: else nothing would verify
        house.evidence().put(text.encode())


def _commands(house: House, say: Say) -> None:
    signed = ("--by", "A. Keeper", "--because", "a reason")
    out = str(house.place / "export.jsonl")
    for words in (
        ("checkpoint",),
        ("verify",),
        ("redact", "1", *signed),
        ("export", "--out", out),
        ("verify", out),
        ("keygen", "--rotate", *signed),
        ("show", "a"),
    ):
        _run(house, say, *words)


def _run(house: House, say: Say, verb: str, *words: str) -> None:
    said, complained = io.StringIO(), io.StringIO()
    where = ("--state-dir", str(house.state), "--checkpoints", str(house.place / "checkpoints"))
    keys = ("--keys", str(house.keys))
    once = patch("fallback_tier.cli.main.build_parser", _parser)
    with once, redirect_stdout(said), redirect_stderr(complained):
        code = main(["audit", verb, *words, *where, *keys])
    if code == exit_codes.OK:
        return
    if verb == "verify" and words and code == exit_codes.BAD_INPUT:
        return  # there is no export: the command before it said why
    # Nothing is damaged by a disk that fails, and nothing of it is called damaged.
    assert code == exit_codes.ENVIRONMENT, (
        f"audit {verb} ended with {code}: {complained.getvalue()}"
    )
    if not said.getvalue():  # else it is a report, which tells by itself
        sentence, _, rest = complained.getvalue().rpartition("  next: ")
        assert "fallback-tier: " in sentence, complained.getvalue()
        assert rest.count("\n") == 1, complained.getvalue()
    assert "Traceback" not in complained.getvalue(), complained.getvalue()
    say(f"refused by audit {verb}, exit code {code}")


COMMANDS = Workload("by command", _ready, _commands)
