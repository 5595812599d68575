"""Secrets where a fix reads: in code, answers, citations, the output of tests. None is on record in clear.

One fix plants PLANTED of them, each in one place, and lives through a void answer, a patch whose tests
fail while they print the secrets, and a retry that is verified. Then every byte that it left is searched,
and every byte that its commands printed. What a patch itself holds is out of question: it must apply. So
is an advisory: it is public, and kept whole.
"""

import json
import shutil
import string
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.campaigns.hostile.audit import maintenance
from tests.campaigns.hostile.audit.campaign import Ask, Tally
from tests.campaigns.hostile.audit.trail_folder import TrailFolder
from tests.e2e.command import osv, repository, run
from tests.unit.prompt.test_redact import IN_CONTEXT, TOKENS
from tests.unit.prompt.test_typed_secrets import ONE_LINE

PLANTED = 20

FIXED = "fixes with a retry, verified"

#: Around a value, and the value: as in the tests of redaction.
TYPED = tuple(
    (form.replace("{", "{{").replace("}", "}}").replace("§", "{}"), "swordfish")
    for form in ONE_LINE
)
KINDS = (*(("{}", token) for token in TOKENS), *IN_CONTEXT, *TYPED)

PLACES = ("code", "output", "answer", "citation")

#: So many of a value's last letters and digits are drawn anew.
FRESH = 12

#: Printed with the secrets, kept with the log: the search finds what there is.
MARKER = "nothing secret about this line"

CODE = "def pad(text):\n    return eval(text)\n"
EDIT = {"path": "left.py", "old": "    return eval(text)"}


class Secret(NamedTuple):
    kind: int
    place: str
    text: str
    value: str


def drawn(case: int, chance: Random) -> Secret:
    """Kind and place go round by the number; the value is like no other's."""
    around, value = KINDS[case % len(KINDS)]
    place = PLACES[case // len(KINDS) % len(PLACES)]
    letters = list(value)
    free = [at for at, letter in enumerate(letters) if letter.isascii() and letter.isalnum()]
    for at in free[-FRESH:] if len(free) > FRESH + 3 else free[2:]:
        letters[at] = chance.choice(_like(letters[at], value))
    fresh = "".join(letters)
    return Secret(case % len(KINDS), place, around.format(fresh), fresh)


def _like(letter: str, value: str) -> str:
    if letter.isdigit():
        return string.digits
    if letter.isupper():
        return string.ascii_uppercase
    return "abcdef" if set(value[-FRESH:]) <= set(string.hexdigits) else string.ascii_lowercase


def _files(secrets: list[Secret]) -> dict[str, str]:
    shown = "".join(f"# {one.text!r}\n" for one in secrets if one.place == "code")
    printed = "".join(f"    print({one.text!r})\n" for one in secrets if one.place == "output")
    test = (
        f"import unittest\n\nimport left\n\n{shown}\n\ndef tell():\n    print({MARKER!r})\n{printed}\n\n"
        "class LeftTest(unittest.TestCase):\n    def test_pad(self):\n        tell()\n"
        "        self.assertEqual(left.pad('1'), 1)\n"
    )
    project = '[project]\nname = "left"\nversion = "1.0.0"\n'
    return {"pyproject.toml": project, "left.py": CODE, "test_left.py": test}


def _answers(secrets: list[Secret]) -> list[dict[str, object]]:
    message = "\n".join(one.text for one in secrets if one.place == "answer")
    cited = [one.text for one in secrets if one.place == "citation"]

    def plan(new: str) -> dict[str, object]:
        return {"action": "source_edit", "edits": [{**EDIT, "new": f"    return {new}"}]}

    return [
        {"answer": f"This is no plan at all.\n{message}"},
        {"answer": plan("float(text) + 1")},
        {"answer": {**plan("int(text)"), "citations": cited}}
        if cited
        else {"answer": plan("int(")},
        {"answer": plan("int(text)")},
        {"answer": plan("int(text)")},
    ]


def one_fix(place: Path, secrets: list[Secret], *, keep_prompts: bool) -> dict[str, bytes]:
    """Everything that the fix and what was done with it left: files by name, and what was printed."""
    trail = TrailFolder(place)
    repo = repository(place / "input" / "repo", _files(secrets))
    advisory, script = place / "input" / "advisory.json", place / "input" / "script.json"
    advisory.write_text(osv("left"))
    script.write_text(json.dumps(_answers(secrets)))
    where = (
        *("--state-dir", trail.state, "--keys", trail.keys),
        *("--checkpoints", place / "checkpoints"),
    )
    ended = run(
        *("fix", repo, "--advisory", advisory, "--script", script, "--dry-run", "--no-sandbox"),
        *where,
        *(("--keep-prompts",) if keep_prompts else ()),
    )
    with trail.reader() as reader:
        events = [event.kind for event in reader.events()]
        fix_id = next(iter(reader.events())).scope.fix_id
    printed = {"what fix printed": ended.out + ended.err}
    assert "FixPatched" in events, (ended, events)
    assert "RagSkippedOnRetry" in events, "no retry"
    for verb in (
        ("log",),
        ("show", fix_id),
        ("verify",),
        ("export", "--with-evidence", "--out", place / "all.jsonl"),
        ("export", "--fix", fix_id, "--out", place / "one.jsonl"),
    ):
        reported = run("audit", *verb, *where)
        assert reported.code == 0, (verb, reported)
        printed[f"what audit {verb[0]} printed"] = reported.out + reported.err
    assert maintenance.seal(trail), "nothing was sealed"
    shutil.rmtree(place / "input")
    found = {str(path.relative_to(place)): path.read_bytes() for path in _all(place)}
    return found | {name: text.encode() for name, text in printed.items()}


def _all(place: Path) -> Iterator[Path]:
    return (path for path in place.rglob("*") if path.is_file())


def leaks(secrets: list[Secret], found: dict[str, bytes]) -> list[str]:
    """Which secret stands where, in clear or as JSON writes it. An export's evidence is base64: it is
    that of the evidence folder, which is searched as it is."""
    return [
        f"{KINDS[secret.kind][0]!r} of the {secret.place}, in {name}"
        for secret in secrets
        for name, content in found.items()
        if any(form.encode() in content for form in (secret.value, json.dumps(secret.value)[1:-1]))
    ]


def secrets(ask: Ask) -> Tally:
    """Each case is one secret; PLANTED of them share a fix."""
    tally, cases = Tally(), ask.cases
    while batch := list(islice(cases, PLANTED)):
        planted = [drawn(number, ask.chance(number)) for number in batch]
        place = ask.place / "fix"
        place.mkdir()
        try:
            found = one_fix(place, planted, keep_prompts=tally.counts[FIXED] % 2 == 0)
            assert any(MARKER.encode() in content for content in found.values()), "no log is kept"
            leaked = leaks(planted, found)
        except Exception as error:
            raise ask.broken(batch[0], f"{type(error).__name__}: {error}") from error
        if leaked:
            raise ask.broken(batch[0], f"one of {len(batch)}: {'; '.join(leaked[:9])}")
        tally.counts.update(f"secrets in {one.place}, none on record" for one in planted)
        tally.counts["files and outputs searched"] += len(found)
        tally.counts[FIXED] += 1
        tally.cases += len(batch)
        shutil.rmtree(place)
        ask.told(tally.cases, ask.count)
    return tally
