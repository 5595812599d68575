"""A proof that patched code makes look passed does not pass: its runner's own report decides.

The code under test runs in the proof's process. It may end that, print what a runner prints, change the
runner and the exit code; the files of the proof are out of its reach.
"""

from pathlib import Path

import pytest

from fallback_audit.vocabulary import GateStatus
from fallback_plugins.npm.plugin import NpmEcosystem
from fallback_plugins.pypi.plugin import PyPIEcosystem
from fallback_tier.gate_ports import GateVerdict
from fallback_tier.gates.builtin.proof import Proof, ProofGate
from fallback_tier.sandbox.clients import SubprocessClients
from tests.choice import a_choice
from tests.integration.gate_setup import advisory, patched
from tests.integration.test_proof_counts import PYTEST, RUN

pytestmark = pytest.mark.sandbox

PASSED, NOT = [GateStatus.PASSED], [GateStatus.FAILED, GateStatus.UNDECIDED]

FILES = {
    "app.py": "def answer():\n    return 41\n",
    "lib.js": "exports.answer = () => 41;\n",
    "README.md": "x\n",
}
PY_RIGHT = "def answer():\n    return 42\n"
JS_RIGHT = "exports.answer = () => 42;\n"

UNITTEST = Proof(
    ("python", "-m", "unittest", "proof/test_proof.py"),
    {
        "proof/test_proof.py": b"import unittest\nfrom app import answer\n\n\n"
        b"class ProofTest(unittest.TestCase):\n    def test_the_answer(self):\n"
        b"        self.assertEqual(answer(), 42)\n    def test_it_answers(self):\n        answer()\n"
    },
)
PY_TEST = Proof(
    ("sh", "-c", RUN, "sh", "-p", "no:cacheprovider", "proof/test_it.py"),
    {
        **PYTEST,
        "proof/test_it.py": b"from app import answer\ndef test_it():\n    assert answer() == 42\n",
    },
)
SCRIPT = Proof(
    ("python", "proof.py"),
    {"proof.py": b"from app import answer\nassert answer() == 42\nprint('found no flaw')\n"},
    end="found no flaw",
)


def judge(tmp_path: Path, proof: Proof, text: str) -> GateVerdict:
    path, plugin = (
        ("lib.js", NpmEcosystem) if "node" in proof.command[0] else ("app.py", PyPIEcosystem)
    )
    with patched(tmp_path, FILES, {path: text}, about=advisory()) as found:
        return ProofGate(proof, plugin(SubprocessClients())).judge(found.context)  # type: ignore[abstract]


OK = "'\\nRan 2 tests in 0.001s\\n\\nOK\\n'"
WRONG = "def answer():\n    return 41\n"

#: What patched Python does, and the flaw is still there.
IN_PYTHON = {
    "at exit": f"import atexit, os\natexit.register(os._exit, 0)\n{WRONG}",
    "a forged end": f"import os, sys\nsys.stderr.write({OK}); sys.stderr.flush()\nos._exit(0)\n{WRONG}",
    "a forged end in the test": (
        f"import os\ndef answer():\n    os.write(2, {OK}.encode())\n    os._exit(0)\n"
    ),
    "a forged end behind the true one": (
        "import atexit, os\n"
        f"atexit.register(lambda: (os.write(2, {OK}.encode()), os._exit(0)))\n{WRONG}"
    ),
    "a thread": (
        "import os, threading, time\n"
        f"def end():\n    time.sleep(.05); os.write(2, {OK}.encode()); os._exit(0)\n"
        "threading.Thread(target=end).start()\n"
        "def answer():\n    time.sleep(1)\n    return 41\n"
    ),
    "a timer at exit": (
        "import atexit, os, threading\n"
        f"atexit.register(lambda: threading.Timer(0, os._exit, (0,)).run())\n{WRONG}"
    ),
    "a signal": (
        "import os, signal\n"
        f"signal.signal(signal.SIGALRM, lambda *_: (os.write(2, {OK}.encode()), os._exit(0)))\n"
        "def answer():\n    signal.raise_signal(signal.SIGALRM)\n"
    ),
    "its end is called by itself": (
        "import atexit, os\n"
        f"def answer():\n    atexit._run_exitfuncs(); os.write(2, {OK}.encode()); os._exit(0)\n"
    ),
    "its end is called by a thread": (
        "import _thread, atexit, os, time\n"
        "def answer():\n    _thread.start_new_thread(atexit._run_exitfuncs, ()); time.sleep(.2)\n"
        f"    os.write(2, {OK}.encode()); os._exit(0)\n"
    ),
    "no ends are left": (
        f"import atexit, os\natexit._clear()\natexit.register(os._exit, 0)\n{WRONG}"
    ),
    "a result that is always good": (
        f"import unittest\nunittest.TestResult.wasSuccessful = lambda self: True\n{WRONG}"
    ),
    "a failure that is none": (
        f"import unittest\nunittest.TextTestResult.addFailure = lambda *_: None\n{WRONG}"
    ),
    "a failure that is a success": (
        "import unittest\nfor one in (unittest.TestResult, unittest.TextTestResult):\n"
        f"    one.addFailure = lambda self, test, error: self.addSuccess(test)\n{WRONG}"
    ),
    "an assertion that asserts nothing": (
        f"import unittest\nunittest.TestCase.assertEqual = lambda *_: None\n{WRONG}"
    ),
    "an assertion with other code": (
        "import unittest\nunittest.TestCase.assertEqual.__code__ = (lambda *_: None).__code__\n"
        + WRONG
    ),
    "an assertion that is put back": (
        "import atexit, unittest\nown = unittest.TestCase.assertEqual\n"
        "unittest.TestCase.assertEqual = lambda *_: None\n"
        f"atexit.register(setattr, unittest.TestCase, 'assertEqual', own)\n{WRONG}"
    ),
    "a run that runs nothing": (
        "import unittest\n"
        "def run(self, result=None):\n"
        "    result.startTest(self); result.addSuccess(self); result.stopTest(self)\n"
        f"unittest.TestCase.run = run\n{WRONG}"
    ),
    "an exit that is none": (
        f"import os, sys\nsys.exit = lambda *_: (os.write(2, {OK}.encode()), os._exit(0))\n{WRONG}"
    ),
    "an exit that is none, and goes on": f"import sys\nsys.exit = lambda *_: None\n{WRONG}",
    "streams led elsewhere": (
        "import os, sys\n"
        "out = os.dup(2)\nnothing = os.open('/dev/null', 1)\nos.dup2(nothing, 1); os.dup2(nothing, 2)\n"
        f"sys.exit = lambda *_: os.write(out, {OK}.encode())\n{WRONG}"
    ),
    "closed streams": (
        f"import os\nout = os.dup(2)\nos.close(2)\nos.write(out, {OK}.encode())\n"
        f"def answer():\n    os._exit(0)\n"
    ),
    "a skipped test": "import unittest\ndef answer():\n    raise unittest.SkipTest('no')\n",
    "another program": (
        "import os\ndef answer():\n"
        f"    os.execvp('python', ['python', '-c', \"import os; os.write(2, {OK}.encode())\"])\n"
    ),
}


@pytest.mark.parametrize("name", a_choice(IN_PYTHON, step=3))
def test_no_forgery_passes_a_proof_by_unittest(tmp_path: Path, name: str) -> None:
    verdict = judge(tmp_path, UNITTEST, IN_PYTHON[name])
    assert verdict.status in NOT, verdict


IN_PYTEST = {
    "at exit": f"import atexit, os\natexit.register(os._exit, 0)\n{WRONG}",
    "a forged end": (
        "import os\ndef answer():\n    os.write(1, b'\\n=== 1 passed in 0.01s ===\\n')\n    os._exit(0)\n"
    ),
    "a forged end past its capture": (
        "import os, sys\ndef answer():\n"
        "    sys.__stdout__.write('\\n=== 1 passed in 0.01s ===\\n'); sys.__stdout__.flush()\n"
        "    open('/proc/self/fd/0')\n    os._exit(0)\n"
    ),
    "an exit of pytest's": "import pytest\ndef answer():\n    pytest.exit('1 passed', returncode=0)\n",
    "a skip": "import pytest\ndef answer():\n    pytest.skip('no')\n",
    "an expected failure": "import pytest\ndef answer():\n    pytest.xfail('no')\n",
    "a call that raises nothing": (
        "import _pytest.runner\nown = _pytest.runner.pytest_runtest_call\n"
        f"_pytest.runner.CallInfo.excinfo = None\n{WRONG}"
    ),
    "a report that passes": (
        "from _pytest.reports import TestReport\nown = TestReport.__init__\n"
        "def make(self, *values, **named):\n    own(self, *values, **named)\n    self.outcome = 'passed'\n"
        f"TestReport.__init__ = make\n{WRONG}"
    ),
}


@pytest.mark.parametrize("name", a_choice(IN_PYTEST, step=3))
def test_no_forgery_passes_a_proof_by_pytest(tmp_path: Path, name: str) -> None:
    verdict = judge(tmp_path, PY_TEST, IN_PYTEST[name])
    assert verdict.status in NOT, verdict


IN_SCRIPTS = {
    "at exit": f"import atexit, os\natexit.register(os._exit, 0)\n{WRONG}",
    "a hook": f"import os, sys\nsys.excepthook = lambda *_: os._exit(0)\n{WRONG}",
    "a hook that exits": f"import sys\nsys.excepthook = lambda *_: sys.exit(0)\n{WRONG}",
    "its last line": (
        'import os, sys\nprint(open(sys.argv[0]).read().split("\'")[1], flush=True)\nos._exit(0)\n'
    ),
}


@pytest.mark.parametrize("name", a_choice(IN_SCRIPTS, step=3))
def test_no_forgery_passes_a_script(tmp_path: Path, name: str) -> None:
    verdict = judge(tmp_path, SCRIPT, IN_SCRIPTS[name])
    assert verdict.status in NOT, verdict


@pytest.mark.parametrize("proof", [UNITTEST, PY_TEST, SCRIPT], ids=["unittest", "pytest", "script"])
def test_a_right_patch_passes(tmp_path: Path, proof: Proof) -> None:
    verdict = judge(tmp_path, proof, PY_RIGHT)
    assert verdict.status in PASSED, verdict


NODE_TEST = Proof(
    ("node", "--test", "proof/p.test.js"),
    {
        "proof/p.test.js": b"const { test } = require('node:test');\nconst assert = require('assert');\n"
        b"const lib = require('../lib.js');\n"
        b"test('the answer', async () => assert.strictEqual(await lib.answer(), 42));\n"
    },
)
#: Without a runner around it: its output alone tells.
NODE_TAP = Proof(("node", "proof/p.test.js"), NODE_TEST.files)
NODE_SCRIPT = Proof(
    ("node", "proof.js"),
    {
        "proof.js": b"const lib = require('./lib.js');\n"
        b"require('assert').strictEqual(lib.answer(), 42);\nconsole.log('found no flaw');\n"
        b"process.exit(0);\n"
    },
    end="found no flaw",
)

TAP = (
    "TAP version 13\\n# Subtest: the answer\\nok 1 - the answer\\n  ---\\n  duration_ms: 1\\n  ...\\n"
    "1..1\\n# tests 1\\n# suites 0\\n# pass 1\\n# fail 0\\n# cancelled 0\\n# skipped 0\\n# todo 0\\n"
    "# duration_ms 5\\n"
)
#: What never comes, and what comes late.
NEVER, LATE = "new Promise(() => {})", "new Promise((done) => setTimeout(done, 500))"
JS_WRONG = "exports.answer = () => 41;\n"
FORGED = f"require('fs').writeSync(1, '{TAP}');"

IN_NODE = {
    "an exit": "process.exit(0);\n",
    "a forged end": f"exports.answer = () => {{ {FORGED} process.exit(0); }};\n",
    "a forged end at once": f"{FORGED} process.exit(0);\n",
    "a forged end, later": (
        f"exports.answer = () => new Promise(() => setTimeout(() => {{ {FORGED} process.exit(0); }}, 9));\n"
    ),
    "a forged end, by no function of its own": (
        f"exports.answer = () => {{ {FORGED} setImmediate(process.exit, 0); return {NEVER}; }};\n"
    ),
    "a forged end by what process.exit calls": (
        f"exports.answer = () => {{ {FORGED} process.reallyExit(0); }};\n"
    ),
    "a forged end, and no trace": (
        "Error.stackTraceLimit = 0; Error.prepareStackTrace = () => [];\n"
        f"exports.answer = () => {{ {FORGED} process.exit(0); }};\n"
    ),
    "an exit code": f"process.on('exit', () => {{ process.exitCode = 0; }});\n{JS_WRONG}",
    "an exit in its end": f"process.on('exit', () => process.reallyExit(0));\n{JS_WRONG}",
    "an exit code, and another output": (
        "const fs = require('fs');\nprocess.stdout.write = () => true;\n"
        f"process.on('exit', () => {{ process.exitCode = 0; {FORGED} }});\n{JS_WRONG}"
    ),
    "an exit code, and a stream led elsewhere": (
        "const fs = require('fs');\nconst out = fs.openSync('/proc/self/fd/1', 'w');\nfs.closeSync(1);\n"
        "fs.openSync('/dev/null', 'w');\n"
        f"process.on('exit', () => {{ process.exitCode = 0; fs.writeSync(out, '{TAP}'); }});\n{JS_WRONG}"
    ),
    "an assertion that asserts nothing": f"require('assert').strictEqual = () => {{}};\n{JS_WRONG}",
    "all assertions": (
        "const assert = require('assert');\nfor (const key of Object.keys(assert)) {\n"
        f"  if (typeof assert[key] === 'function') assert[key] = () => {{}};\n}}\n{JS_WRONG}"
    ),
    "a signal": f"exports.answer = () => {{ {FORGED} process.kill(process.pid, 'SIGTERM'); }};\n",
    "a signal that is handled": (
        f"process.on('SIGUSR2', () => {{ {FORGED} process.exit(0); }});\n"
        f"exports.answer = () => {{ process.kill(process.pid, 'SIGUSR2'); return {LATE}; }};\n"
    ),
    "an uncaught error": (
        f"process.on('uncaughtException', () => {{ {FORGED} process.exit(0); }});\n"
        f"exports.answer = () => {{ setImmediate(() => {{ throw 1; }}); return {LATE}; }};\n"
    ),
    "nothing is waited for": f"exports.answer = () => {{ {FORGED} return {NEVER}; }};\n",
}


@pytest.mark.parametrize("proof", [NODE_TEST, NODE_TAP], ids=["a runner", "by itself"])
@pytest.mark.parametrize("name", a_choice(IN_NODE, step=3))
def test_no_forgery_passes_a_proof_by_node(tmp_path: Path, name: str, proof: Proof) -> None:
    verdict = judge(tmp_path, proof, IN_NODE[name])
    assert verdict.status in NOT, verdict


LAST = "console.log(require('fs').readFileSync(process.argv[1], 'utf8').split(\"'\")[5]);"
IN_NODE_SCRIPTS = {
    "its last line": f"{LAST} process.exit(0);\n",
    "its last line, later": f"{LAST} setImmediate(process.exit, 0);\n{JS_WRONG}",
    "an uncaught error": (
        f"process.on('uncaughtException', () => {{ {LAST} process.exit(0); }});\n{JS_WRONG}"
    ),
    "its assertion": f"require('assert').strictEqual = () => {{}};\n{JS_WRONG}",
}


@pytest.mark.parametrize("name", a_choice(IN_NODE_SCRIPTS, step=3))
def test_no_forgery_passes_a_script_of_node(tmp_path: Path, name: str) -> None:
    verdict = judge(tmp_path, NODE_SCRIPT, IN_NODE_SCRIPTS[name])
    assert verdict.status in NOT, verdict


@pytest.mark.parametrize(
    "proof", [NODE_TEST, NODE_TAP, NODE_SCRIPT], ids=["a runner", "by itself", "script"]
)
def test_a_right_patch_of_node_passes(tmp_path: Path, proof: Proof) -> None:
    verdict = judge(tmp_path, proof, JS_RIGHT)
    assert verdict.status in PASSED, verdict


#: Proofs that patch, skip, repeat and start programs, as honest ones do.
HONEST = {
    "mocks, subtests, a set-up": (
        UNITTEST.command,
        (
            b"import subprocess, sys, unittest\nfrom unittest import mock\nfrom app import answer\n\n\n"
            b"class ProofTest(unittest.TestCase):\n    @classmethod\n    def setUpClass(cls):\n"
            b"        cls.wanted = 42\n    def test_parts(self):\n        for part in range(3):\n"
            b"            with self.subTest(part=part):\n"
            b"                self.assertEqual(answer(), self.wanted)\n"
            b"    @unittest.skip('later')\n    def test_later(self):\n        pass\n"
            b"    def test_mocked(self):\n"
            b"        with mock.patch('builtins.print'), mock.patch('sys.exit'):\n"
            b"            self.assertEqual(answer(), 42)\n"
            b"    def test_a_program(self):\n"
            b"        ends = 'import os, app; os._exit(app.answer())'\n"
            b"        done = subprocess.run([sys.executable, '-c', ends])\n"
            b"        self.assertEqual(done.returncode, 42)\n"
        ),
    ),
    "a main of its own": (
        ("python", "proof/test_proof.py"),
        (
            b"import sys, unittest\nsys.path.insert(0, '.')\nfrom app import answer\n\n\n"
            b"class ProofTest(unittest.TestCase):\n    def test_it(self):\n"
            b"        self.assertEqual(answer(), 42)\n\n\nunittest.main()\n"
        ),
    ),
    "isolated, through a shell": (
        ("sh", "-c", "python -B -m unittest discover -s proof -t . && echo done"),
        UNITTEST.files["proof/test_proof.py"],
    ),
}


@pytest.mark.parametrize(("command", "text"), HONEST.values(), ids=HONEST)
def test_an_honest_proof_passes(tmp_path: Path, command: tuple[str, ...], text: bytes) -> None:
    files = {"proof/test_proof.py": text, "proof/__init__.py": b""}
    verdict = judge(tmp_path, Proof(command, files), PY_RIGHT)
    assert verdict.status in PASSED, verdict


PY_TESTS = b"""\
import pytest
from app import answer

@pytest.fixture
def wanted():
    return 42

@pytest.mark.parametrize("number", [1, 2])
def test_it(number, wanted, monkeypatch, capsys):
    monkeypatch.setattr("builtins.input", lambda *_: "x")
    assert answer() == wanted

@pytest.mark.skip
def test_later():
    pass

class TestMore:
    def test_it(self, tmp_path):
        assert answer() == 42
"""


def test_an_honest_proof_by_pytest_passes(tmp_path: Path) -> None:
    proof = Proof(PY_TEST.command, {**PYTEST, "proof/test_it.py": PY_TESTS})
    verdict = judge(tmp_path, proof, PY_RIGHT)
    assert verdict.status in PASSED, verdict


def test_what_the_base_commit_does_too_is_held_against_no_patch(tmp_path: Path) -> None:
    """A library may change what test runners use, and a program may end its process."""
    compat = (
        "import unittest\nunittest.TestCase.assertItemsEqual = unittest.TestCase.assertCountEqual\n"
    )
    changes = f"{compat}unittest.TestCase.shortDescription = lambda self: None\n"
    before = {"app.py": changes + FILES["app.py"], "lib.js": FILES["lib.js"]}
    with patched(
        tmp_path / "py", before, {"app.py": changes + PY_RIGHT}, about=advisory()
    ) as found:
        verdict = ProofGate(UNITTEST, PyPIEcosystem(SubprocessClients())).judge(found.context)
    assert verdict.status in PASSED, verdict
    ends = "if (process.argv[2] === 'end') process.exit(0);\n"
    program = Proof(
        NODE_TEST.command,
        {
            "proof/p.test.js": NODE_TEST.files["proof/p.test.js"]
            + b"require('child_process').execFileSync(process.execPath, ['lib.js', 'end']);\n"
        },
    )
    before = {**FILES, "lib.js": ends + FILES["lib.js"]}
    after = {"lib.js": ends + JS_RIGHT}
    with patched(tmp_path / "js", before, after, about=advisory()) as found:
        verdict = ProofGate(program, NpmEcosystem(SubprocessClients())).judge(found.context)
    assert verdict.status in PASSED, verdict


def test_a_proof_whose_record_is_removed_is_a_persons_question(tmp_path: Path) -> None:
    text = (
        "const fs = require('fs');\n"
        "for (const name of fs.readdirSync('.')) {\n"
        "  if (name.startsWith('.fallback-tier-')) fs.writeFileSync(name, '');\n"
        f"}}\n{JS_RIGHT}"
    )
    assert judge(tmp_path, NODE_TAP, text).status is GateStatus.UNDECIDED
    remove = (
        "import os\nfor name in os.listdir('.'):\n    if name.startswith('.fallback-tier-'):\n"
        f"        try:\n            os.remove(name)\n        except OSError:\n            pass\n{PY_RIGHT}"
    )
    assert judge(tmp_path / "py", UNITTEST, remove).status is GateStatus.UNDECIDED
