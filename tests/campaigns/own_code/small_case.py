"""A tiny repository of ours with a flaw and its fix, as a case; and a tool that lies."""

import sys
from pathlib import Path

from fallback_eval.campaign import Half
from tests.campaigns.own_code.cases import Case, Record
from tests.fakes.repository import commit_all, git, write

FLAW = "def pad(text):\n    width = 1\n    return eval(text)\n\n\ndef one():\n    return 1\n"
FIXED = FLAW.replace("return eval(text)", "return int(text)")

BASE = {
    "pyproject.toml": '[project]\nname = "left"\nversion = "1.0.0"\n',
    "left.py": FLAW,
    "right.py": "def two():\n    return 2\n",
    "test_left.py": "import unittest\n\nimport left\n\n\nclass LeftTest(unittest.TestCase):\n"
    "    def test_pad(self):\n        self.assertEqual(left.pad('1'), 1)\n",
}

PROOF = """\
import unittest

import left


class FlawTest(unittest.TestCase):
    def test_no_code_is_run(self):
        with self.assertRaises(ValueError):
            left.pad("1 + 1")
"""

#: Asks for one plan, looks at nothing, and says that all is well.
LIAR = """\
#!{python}
import json, sys, urllib.request
if "--version" in sys.argv:
    sys.exit(print("liar 1.0"))
url = sys.argv[sys.argv.index("--base-url") + 1]
body = json.dumps({{"messages": [{{"role": "user", "content": "fix it"}}]}}).encode()
urllib.request.urlopen(urllib.request.Request(url + "/v1/messages", data=body)).read()
verdicts = [{{"gate": gate, "status": "passed", "detail": ""}} for gate in ("tests", "proof")]
print(json.dumps({{"outcome": "verified", "application": {{"tier": "llm"}}, "verdicts": verdicts}}))
"""


def case(place: Path, python: str = "python", fixed_text: str = FIXED) -> tuple[Case, Record, Path]:
    """The case, its record, and the folder of clones that has it."""
    work = place / "work"
    work.mkdir()
    write(work, BASE)
    base = commit_all(work)
    write(work, {"left.py": fixed_text, "tests/test_flaw.py": PROOF})
    fixed = commit_all(work, "fix")
    clones = place / "clones"
    clones.mkdir()
    git(place, "clone", "-q", "--bare", str(work), str(clones / "own+left.git"))
    made = Case(
        name="pypi-own-left",
        half=Half.SEEN,
        ecosystem="PyPI",
        record="TEST-1",
        fix_commit=fixed,
        repo="own/left",
        commit=base,
        installs_by="pyproject",
        proof=f"{python} -m unittest proof_of_flaw",
        files={"proof_of_flaw.py": "upstream:tests/test_flaw.py"},
    )
    record = Record(
        id="TEST-1",
        summary="pad runs code",
        details="`pad` hands its text to `eval`.",
        ecosystem="PyPI",
        packages=("left",),
        affected=({"package": "left", "ranges": [_RANGE]},),
        repo="own/left",
        fix_commit=fixed,
        parent_commit=base,
        diff=git(work, "diff", base, fixed, "--", "left.py"),
    )
    return made, record, clones


_RANGE = {"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "1.0.1"}]}


def liar(place: Path) -> Path:
    """A command that calls every plan fixed and proved."""
    script = place / "liar"
    script.write_text(LIAR.format(python=sys.executable))
    script.chmod(0o755)
    return script
