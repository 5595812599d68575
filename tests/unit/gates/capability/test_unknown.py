"""What is neither known to be harmless nor the project's own must be declared."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from fallback_audit.vocabulary import Capability, FailureKind, GateStatus
from fallback_tier.gate_ports import GateVerdict
from fallback_tier.gates.builtin.capability import CapabilityGate
from fallback_tier.gates.capability import Project, compare
from fallback_tier.outcome import FileChange, SourceEdit
from tests.capability.evasions import Evasion, evasions
from tests.integration.gate_setup import advisory, patched

EVASIONS = list(evasions("seen"))


def judged(
    path: str, after: str, before: str = "", files: dict[str, str] | None = None
) -> GateVerdict:
    """One changed file, in a project of these files."""
    there = {path: before, **(files or {})}

    def texts(paths: Iterable[str]) -> Iterator[tuple[str, str]]:
        return ((one, there[one]) for one in paths)

    change = FileChange(path=path, before=before, after=after)
    return compare([change], frozenset(), gate="capability", project=Project(tuple(there), texts))


def passes(path: str, after: str, before: str = "", files: dict[str, str] | None = None) -> bool:
    return judged(path, after, before, files).status is GateStatus.PASSED


@pytest.mark.parametrize("evasion", EVASIONS, ids=lambda one: f"{one.language}-{one.name}")
def test_a_way_around_the_lists_must_be_declared(evasion: Evasion) -> None:
    assert evasion.is_read
    assert evasion.is_caught()


@pytest.mark.parametrize("of", ["seen", "unseen"])
def test_an_evasion_says_what_it_is_in_code_that_can_be_read(of: str) -> None:
    """A list that can't be read would be refused for that, and measure nothing."""
    found = list(evasions(of))
    assert len(found) >= 40
    assert [one.name for one in found if not one.is_read] == []


PYTHON, SCRIPT = "src/a.py", "src/a.js"


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        (PYTHON, "x.oldcall(), x.other()\n", "().__class__.__base__.__subclasses__()\n"),
        (PYTHON, "import goodx\n", "import evilx\n"),
        (SCRIPT, "a.frobnicate()\n", "[].constructor.constructor(a)()\n"),
        (SCRIPT, "a.frobnicate()\n", "require('./x.node')\n"),
    ],
)
def test_an_unknown_use_that_goes_excuses_none_that_comes(
    path: str, before: str, after: str
) -> None:
    assert not passes(path, after, before)


@pytest.mark.parametrize("first", ["#!/usr/bin/env pypy3", "", "#!/bin/false"])
def test_without_its_first_line_a_program_is_read_as_before(first: str) -> None:
    body = "import os\nos.system('x')\n"
    before = "#!/usr/bin/env python3\nimport os\n"
    assert judged("bin/tool", f"{first}\n{body}", before).status is GateStatus.FAILED


@pytest.mark.parametrize(
    ("path", "code", "files"),
    [
        (PYTHON, "import left\n", {"src/b.py": "import left\n"}),
        (PYTHON, "import left.right\n", {"src/b.py": "from left import x\n"}),
        (PYTHON, "import left\n", {"src/b.py": "import json, left\n"}),
        (PYTHON, "from left import x\n", {"src/left/__init__.py": ""}),
        (PYTHON, "from .left.right import x\n", {"src/left/right.py": "", "src/left/__init__.py": ""}),
        (PYTHON, "x.reach()\n", {"src/b.py": "y.reach()\n"}),
        (PYTHON, "x.reach()\n", {"src/b.py": "def reach(): pass\n"}),
        (PYTHON, "reach = x.reach\nreach()\n", {"src/b.py": "def reach(): pass\n"}),
        (SCRIPT, "require('left')\n", {"src/b.js": "const a = require('left')\n"}),
        (SCRIPT, "require('@a/left/x')\n", {"src/b.ts": "import a from '@a/left'\n"}),
        (SCRIPT, "require('./left')\n", {"src/left.ts": ""}),
        (SCRIPT, "require('./left.js')\n", {"src/left.ts": ""}),
        (SCRIPT, "require('../left')\n", {"left/index.js": ""}),
        (SCRIPT, "document.reach()\n", {"src/b.js": "document.reach\n"}),
        (SCRIPT, "const x = 1\nx.reach()\n", {"src/b.js": "class A {\n  reach(a) {\n  }\n}\n"}),
    ],
)  # fmt: skip
def test_what_the_project_has_is_known(path: str, code: str, files: dict[str, str]) -> None:
    assert passes(path, code, files=files)
    assert not passes(path, code)
    # A test's words are not the product's, and another language's are another's.
    (other,) = [name for name in files if not name.endswith("__init__.py")] or [*files]
    if files[other]:
        assert not passes(path, code, files={f"tests/{other}": files[other]})
        wrong = f"src/c{'.js' if path == PYTHON else '.py'}"
        assert not passes(path, code, files={wrong: files[other]})


@pytest.mark.parametrize(
    ("path", "code"),
    [
        (PYTHON, "def reach(self): pass\nx.reach()\n"),
        (SCRIPT, "const x = { reach() {} }\nx.reach()\n"),
        (SCRIPT, "const x = 1\nclass A { #reach() {} f() { x.#reach() } }\n"),
    ],
)
def test_what_the_patch_defines_is_known(path: str, code: str) -> None:
    assert passes(path, code)


@pytest.mark.parametrize(
    ("path", "code"),
    [
        (PYTHON, "x.__globals__\n"),
        (PYTHON, "getattr(x, y)\n"),
        (PYTHON, "import unittest.mock\n"),
        (PYTHON, "import random\nrandom._inst.choice([])\n"),
        (SCRIPT, "const x = 1\nx.constructor()\n"),
        (SCRIPT, "const x = 1\nx[`${x}`]()\n"),
        (SCRIPT, "require('node:sqlite')\n"),
        (SCRIPT, "require('/tmp/left')\n"),
        (SCRIPT, "require('./left.node')\n"),
        (SCRIPT, "process.binding\n"),
    ],
)
def test_what_no_project_answers_for(path: str, code: str) -> None:
    """That another file has it is no excuse; that this one had it as often is."""
    assert not passes(path, code, files={f"src/b{path[-3:]}": code})
    assert passes(path, f"\n{code}", before=code)


@pytest.mark.parametrize(
    "code",
    [
        "import logging\nlogging.getLogger(__name__).info('x')\n",
        "import os\nos.path.join(os.environ['A'], os.getcwd())\n",
        "import sys\nsys.stderr.write(sys.version_info)\n",
        "import asyncio\nasyncio.run(asyncio.sleep(1))\n",
        "from importlib.metadata import version\nversion('x')\n",
        "import datetime as dt\ndt.datetime.now(dt.timezone.utc).isoformat()\n",
        "import hashlib, hmac\nhmac.compare_digest(hashlib.new('md5').hexdigest(), x)\n",
        "from xml.etree import ElementTree\nElementTree.fromstring(x).findall('a')\n",
        "class A:\n    def f(self):\n        super().__init__()\n        return self.__class__.__name__\n",
        "getattr(x, 'name', None)\n",
        "from six.moves.urllib.parse import quote\nquote(x)\n",
    ],
)
def test_everyday_python_needs_no_declaration(code: str) -> None:
    found = judged(PYTHON, code)
    assert found.status is GateStatus.PASSED, found.log


@pytest.mark.parametrize(
    "code",
    [
        "const { join } = require('path')\njoin(__dirname, 'a').split('/').map((x) => x.trim())\n",
        "import fs from 'node:fs'\nfs.promises.readFile('a').then(String)\n",
        "process.stdout.write(process.env.HOME + process.versions.node)\n",
        "module.exports = { f: async (x) => JSON.parse(await x) }\n",
        "const wait = (ms) => new Promise((resolve) => setTimeout(() => resolve(), ms))\n",
        "function f(done) { setTimeout(done, 1); done() }\n",
        "class A extends Map { clone() { return new this.constructor(this.entries()) } }\n",
        "const o = Object.create(null)\nif (Object.prototype.hasOwnProperty.call(o, 'a')) delete o.a\n",
        "const { createHash } = require('crypto')\ncreateHash('sha256').update('x').digest('hex')\n",
        "try { throw new TypeError('x') } catch ({ message }) { console.error(message) }\n",
    ],
)
def test_everyday_javascript_needs_no_declaration(code: str) -> None:
    found = judged(SCRIPT, code)
    assert found.status is GateStatus.PASSED, found.log


def test_the_gate_asks_the_repository_and_the_plan(tmp_path: Path) -> None:
    files = {"src/app.py": "x = 1\n", "src/b.py": "import left\n"}
    edit = {"action": "source_edit", "edits": [{"path": "a.py", "old": "x", "new": "y"}]}
    for name, code, kinds, status in (
        ("its own", "import left\n", [], GateStatus.PASSED),
        ("unknown", "import right\n", [], GateStatus.FAILED),
        ("declared", "import right\n", [Capability.UNKNOWN], GateStatus.PASSED),
        ("another kind", "import right\n", [Capability.NETWORK], GateStatus.FAILED),
    ):
        change: dict[str, str | None] = {"src/app.py": code}
        with patched(tmp_path / name, dict(files), change, about=advisory()) as case:
            plan = SourceEdit.model_validate({**edit, "capabilities": kinds})
            application = case.context.application.model_copy(update={"plan": plan})
            verdict = CapabilityGate().judge(case.with_(application=application).context)
        assert verdict.status is status, name
        if status is GateStatus.FAILED:
            assert verdict.failure_kind is FailureKind.UNDECLARED_CAPABILITY
            assert "new unknown use of right (src/app.py line 1)" in verdict.log
            assert '"capabilities": ["unknown"]' in verdict.log
