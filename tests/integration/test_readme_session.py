"""The session in the README is a real one: its command is run, and prints what stands there.

``pytest tests/integration/test_readme_session.py --refresh-readme`` rewrites it.
"""

import json
import re
from pathlib import Path

import pytest

from fallback_tier.cli import exit_codes
from tests.e2e.command import repository, run

README = Path(__file__).parents[2] / "README.md"

SESSION = re.compile(r"(<!-- session -->\n```text\n)(.*?)(```\n)", re.DOTALL)

COMMAND = ("fix", "mailer", "--advisory", "GHSA-jjg7-2v5v-x38h.json")

#: What OSV publishes of it, without the words.
ADVISORY = {
    "schema_version": "1.6.0",
    "id": "GHSA-jjg7-2v5v-x38h",
    "modified": "2024-04-11T00:00:00Z",
    "aliases": ["CVE-2024-3651"],
    "affected": [
        {
            "package": {"ecosystem": "PyPI", "name": "idna"},
            "ranges": [
                {"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "3.7"}]},
            ],
        }
    ],
}

MAILER = {
    "requirements.txt": "idna==3.6\n",
    "names.py": "import idna\n\n\ndef host(name: str) -> str:\n    return idna.encode(name).decode()\n",
    "test_names.py": """\
import unittest

from names import host


class Names(unittest.TestCase):
    def test_a_name_is_encoded(self) -> None:
        self.assertEqual(host("bücher.example"), "xn--bcher-kva.example")
""",
}


def _told(session: str) -> str:
    """Without what is another in each run."""
    return re.sub(r"fix-[0-9a-f]{16}", "fix-…", session)


@pytest.mark.registry("uv")
@pytest.mark.sandbox
def test_the_session_is_a_real_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    monkeypatch.chdir(tmp_path)
    repository(tmp_path / "mailer", MAILER)
    Path(COMMAND[-1]).write_text(json.dumps(ADVISORY))
    run("audit", "keygen")  # else the first run says that it made a key
    ended = run(*COMMAND, env={"COLUMNS": "130", "NO_COLOR": "1"})
    assert ended.code == exit_codes.OK, ended.err
    command = " ".join(("$ fallback-tier", *COMMAND))
    real = f"{command}\n{ended.err}{ended.out}"
    text = README.read_text()
    shown = SESSION.search(text)
    assert shown
    if pytestconfig.getoption("refresh_readme") and _told(shown[2]) != _told(real):
        README.write_text(text.replace(shown[0], shown[1] + real + shown[3]))
        return
    assert _told(shown[2]) == _told(real), "run this test with --refresh-readme"
