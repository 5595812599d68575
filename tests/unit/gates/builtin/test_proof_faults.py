"""Failures that are no proof, as the real interpreters and runners word them."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fallback_tier.execution import CommandResult
from fallback_tier.gates.builtin.proof import fault

PYTEST = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q")
UNITTEST = (sys.executable, "-m", "unittest")
NODE = pytest.mark.skipif(shutil.which("node") is None, reason="node is not on PATH")

SET_UP = """\
import unittest

class T(unittest.TestCase):
    {}
        {}

    def test_it(self):
        self.fail("evil")
"""

FIXTURE = """\
import pytest

@pytest.fixture
def app():
    {}

def test_it(app):
    assert app == "good"
"""

CASE = "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        {}\n"


def told(tmp_path: Path, argv: tuple[str, ...], files: dict[str, str]) -> str | None:
    for path, text in files.items():
        (tmp_path / path).write_text(text)
    done = subprocess.run(
        argv,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "NO_COLOR": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # ours take longer to import than the case to run
        },
        timeout=60,
        check=False,
    )
    assert done.returncode != 0, done.stdout
    return fault(
        CommandResult(argv=argv, exit_code=done.returncode, output=done.stdout, duration_ms=1)
    )


@pytest.mark.parametrize(
    ("argv", "files"),
    [
        (("sh", "-c", "no-such-program"), {}),
        (("sh", "-c", "./proof"), {"proof": "#!/bin/sh\n"}),
        ((sys.executable, "absent.py"), {}),
        ((sys.executable, "-m", "absent_module"), {}),
        ((sys.executable, "p.py"), {"p.py": "import absent_module\n"}),
        ((sys.executable, "p.py"), {"p.py": "from json import absent\n"}),
        ((sys.executable, "p.py"), {"p.py": "def broken(:\n"}),
        (PYTEST, {"test_p.py": "import absent_module\n\ndef test_it():\n    assert 0\n"}),
        (PYTEST, {"test_p.py": "def broken(:\n"}),
        (
            (*PYTEST, "test_p.py"),
            {
                "conftest.py": "import absent_module\n",
                "test_p.py": "def test_it():\n    assert 0\n",
            },
        ),
        (
            PYTEST,
            {
                "conftest.py": "def pytest_collection_modifyitems():\n    raise ValueError('no')\n",
                "test_p.py": "def test_it():\n    assert 0\n",
            },
        ),
        (PYTEST, {"app.py": ""}),
        ((*PYTEST, "absent.py"), {}),
        ((*PYTEST, "test_p.py::test_absent"), {"test_p.py": "def test_it():\n    assert 0\n"}),
        ((*UNITTEST, "test_p"), {"test_p.py": "import absent_module\n"}),
        ((*UNITTEST, "test_absent"), {}),
        (PYTEST, {"test_p.py": CASE.format("import absent_module")}),
        ((*UNITTEST, "test_p"), {"test_p.py": CASE.format("from json import absent")}),
        ((*UNITTEST, "test_p"), {"test_p.py": SET_UP.format("def setUp(self):", "int(None)")}),
        (
            (*UNITTEST, "-v", "test_p"),
            {
                "test_p.py": SET_UP.format(
                    "@classmethod\n    def setUpClass(cls):", "raise ValueError('a = b')"
                )
            },
        ),
        (PYTEST, {"test_p.py": FIXTURE.format("return int(None)")}),
        pytest.param(("node", "absent.js"), {}, marks=NODE),
        pytest.param(("node", "p.js"), {"p.js": "require('absent');\n"}, marks=NODE),
        pytest.param(("node", "p.mjs"), {"p.mjs": "import 'absent';\n"}, marks=NODE),
        pytest.param(("node", "p.js"), {"p.js": "function broken( {\n"}, marks=NODE),
        pytest.param(("node", "--test", "p.js"), {"p.js": "require('absent');\n"}, marks=NODE),
        pytest.param(
            ("node", "p.mjs"),
            {"p.mjs": "import { x } from './a.mjs';\n", "a.mjs": ""},
            marks=NODE,
        ),
    ],
)
def test_what_never_reached_the_flaw_is_no_proof(
    tmp_path: Path, argv: tuple[str, ...], files: dict[str, str]
) -> None:
    assert told(tmp_path, argv, files)


@pytest.mark.parametrize(
    ("argv", "files"),
    [
        (("false",), {}),
        (("sh", "-c", "kill -SEGV $$"), {}),
        ((sys.executable, "p.py"), {"p.py": "assert 1 == 2, 'No module named x'\n"}),
        ((sys.executable, "p.py"), {"p.py": "raise ValueError('ImportError: x')\n"}),
        (PYTEST, {"test_p.py": "def test_it():\n    assert 'evil' == 'good'\n"}),
        (PYTEST, {"test_p.py": "def test_it():\n    assert 0, 'ERROR collecting things'\n"}),
        ((*UNITTEST, "test_p"), {"test_p.py": CASE.format("self.fail('not found: x')")}),
        ((*UNITTEST, "test_p"), {"test_p.py": SET_UP.format("def setUp(self):", "self.fail()")}),
        (
            (*UNITTEST, "test_p"),
            {"test_p.py": SET_UP.format("def setUp(self):", "int(None)") + CASE.format("assert 0")},
        ),
        (
            (*UNITTEST, "test_p"),
            {"test_p.py": "def setUp():\n    int(None)\n" + CASE.format("setUp()")},
        ),
        (PYTEST, {"test_p.py": FIXTURE.format("assert 'evil' == 'good'")}),
        (
            PYTEST,
            {
                "test_p.py": FIXTURE.format("return int(None)")
                + "\ndef test_more():\n    assert 0\n"
            },
        ),
        pytest.param(("node", "p.js"), {"p.js": "require('assert')(false);\n"}, marks=NODE),
        pytest.param(("node", "p.js"), {"p.js": "JSON.parse('{');\n"}, marks=NODE),
        pytest.param(
            ("node", "--test", "p.js"),
            {"p.js": "require('node:test').test('it', () => { throw Error('polluted'); });\n"},
            marks=NODE,
        ),
    ],
)
def test_what_fails_in_its_own_words_may_be_one(
    tmp_path: Path, argv: tuple[str, ...], files: dict[str, str]
) -> None:
    assert told(tmp_path, argv, files) is None
