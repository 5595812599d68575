"""Evasions: code that uses a capability in a way that no list of words may have, put into a harmless
file."""

import tomllib
from collections.abc import Iterator
from pathlib import Path

from fallback_audit.vocabulary import FailureKind
from fallback_tier.gates.capability import Project, compare
from fallback_tier.outcome import FileChange
from tests.campaigns.measuring.frozen import Frozen

HERE = Path(__file__).parent
LISTS = ("seen", "unseen")

#: The file, what is in it, and the head of the function that the evasion is the body of.
_HOSTS = {
    "python": (
        "app.py",
        "import json\nimport os\n\n\ndef greet(name):\n    return os.path.join('hello', name)\n",
        "\n\ndef left(self, x, y, loop, db, session, client):\n",
        "",
    ),
    "javascript": (
        "lib/app.js",
        "'use strict'\nconst path = require('path')\nexports.f = (x) => path.join('a', x)\n",
        "function left(x, y, z, app, client) {\n",
        "}\n",
    ),
}


class Evasion(Frozen):
    """One of a list."""

    of: str
    language: str
    name: str
    code: str

    @property
    def change(self) -> FileChange:
        """The harmless file before and with it."""
        path, before, head, end = _HOSTS[self.language]
        body = "".join(f"    {line}\n" for line in self.code.strip().splitlines())
        return FileChange(path=path, before=before, after=f"{before}{head}{body}{end}")

    def is_caught(self, project: Project | None = None) -> bool:
        """Would the gate ask for a declaration? ``project``: where the file is put; None: nowhere."""
        verdict = compare([self.change], frozenset(), gate="capability", project=project)
        return verdict.failure_kind is FailureKind.UNDECLARED_CAPABILITY

    @property
    def is_read(self) -> bool:
        """Can it be read as its language? What can't is refused for that."""
        verdict = compare([self.change], frozenset(), gate="capability")
        return "could not be read" not in verdict.log


def evasions(of: str) -> Iterator[Evasion]:
    """Those of a list, ``seen`` or ``unseen``."""
    reported = tomllib.loads((HERE / f"{of}.toml").read_text(encoding="utf-8"))
    for language, codes in reported.items():
        for name, code in codes.items():
            yield Evasion(of=of, language=language, name=name, code=code)
