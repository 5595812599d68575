"""What is neither known to be harmless nor the project's own must be declared."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from fallback_audit.vocabulary import Capability, FailureKind, GateStatus
from fallback_tier.gate_ports import GateVerdict
from fallback_tier.gates.builtin.common import CapabilityGate
from fallback_tier.gates.capability import Project, compare
from fallback_tier.outcome import FileChange, SourceEdit
from tests.campaigns.capability.evasions import Evasion, evasions
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


#: Writes, and ways to a loader, that steer what runs later or what judges.
STEERING = {
    SCRIPT: """
        process.env.NODE_OPTIONS = '--require /tmp/x'
        process.env['NODE_OPTIONS'] += ' --require /tmp/x'
        process.env["NODE_" + "OPTIONS"] = x
        process.env[`NODE_PATH`] = x
        process.env['NODE\\x5fPATH'] = x
        process.env.NODE_OPTIONS ||= x
        process['env']['NODE_PATH'] = x
        globalThis.process.env.NODE_PATH = x
        global['process'].env.NODE_PATH = x
        require('process').env.NODE_OPTIONS = x
        require('node:process').env.NODE_OPTIONS = x
        import process from 'node:process'; process.env.NODE_OPTIONS = x
        import * as p from 'process'; p.default.env.NODE_OPTIONS = x
        import { env } from 'node:process'; env.NODE_OPTIONS = x
        const { env } = process; env.NODE_OPTIONS = x
        const { env: { ...e } } = process; e.NODE_OPTIONS = x
        const e = process.env; e['NODE_OPTIONS'] = x
        const e = process.env; e[x] = y
        process.env[x] = y
        const p = process; p.env[x()] = y
        for (const k of x) process.env[k] = y
        delete process.env.NODE_OPTIONS
        process.env = x
        process.env.PATH = '/tmp:' + process.env.PATH
        Object.assign(process.env, { NODE_OPTIONS: x })
        Object.assign(process.env, { ['NODE_' + 'OPTIONS']: x })
        Object.assign(process.env, x)
        Object.assign(process.env, { ...x })
        Object.defineProperty(process.env, 'NODE_OPTIONS', { value: x })
        Object.defineProperty(process.env, x, y)
        Reflect.set(process.env, 'NODE_OPTIONS', x)
        Reflect.set(process.env, x, y)
        const env = { ...process.env, NODE_OPTIONS: x }; left(env)
        const NODE_OPTIONS = x; left({ NODE_OPTIONS })
        left({ LD_PRELOAD: x })
        [process.env.NODE_OPTIONS] = x;
        ({ a: process.env.NODE_OPTIONS } = x);
        process.loadEnvFile(x)
        process.execArgv.push(x)
        process.execArgv.unshift('--import=/tmp/x')
        module.constructor._load('child_process')
        module.constructor._load = x
        module['constructor']._load('fs')
        module.constructor.prototype.require = x
        module.constructor._extensions['.js'] = x
        module.constructor.createRequire('/')
        const { constructor: M } = module; M._load('x')
        const M = module.constructor; M._resolveFilename = x
        const m = module; m.constructor._load('x')
        Reflect.get(module, 'constructor')._load('x')
        module[x]._load('y')
        module.parent.constructor._load('x')
        module.children[0].constructor._load('x')
        require.main.constructor._load('x')
        require.main.require('child_process')
        require('module')._load('x')
        require('module')._cache[x] = y
        require('module').prototype.require = x
        require('node:module').Module._extensions['.js'] = x
        require('module').wrap = x
        require.cache[x] = y
        require.cache[require.resolve('assert')].exports = x
        require.extensions['.js'] = x
        require.main.exports = x
        process.mainModule.constructor._load('x')
        process.mainModule.require('x')
        process.binding('x')
        process['binding']('x')
        process[x]('y')
        process.dlopen(x, y)
        process.reallyExit(0)
        Reflect.get(process, 'binding')('fs')
        Reflect.get(process, x)('fs')
        Reflect.apply(process.binding, process, ['fs'])
        require('assert').strictEqual = x
        const assert = require('assert'); assert.ok = x
        const assert = require('assert'); assert['ok'] = x
        const assert = require('assert'); assert[y] = x
        import assert from 'node:assert'; assert.ok = x
        const assert = require('assert'); Object.assign(assert, x)
        const assert = require('assert'); Object.defineProperty(assert, 'ok', x)
        const assert = require('assert'); assert.__defineGetter__('ok', x)
        const fs = require('fs'); fs.promises.readFile = x
        require('events').prototype.emit = x
        process.exit = x
        process.stdout.write = x
        process.emit = x
        globalThis.process = x
        global.it = x
        globalThis['expect'] = x
        expect.extend(x)
        JSON.parse = x
        Array.prototype.push = x
        Promise.prototype.then = x
        Error.prepareStackTrace = x
        Object.prototype.toJSON = x
        Object.defineProperty(Array.prototype, 'push', x)
    """,
    PYTHON: """
        import os; os.environ["PYTHONPATH"] = x
        import os; os.environ["LD_PRELOAD"] = x
        import os; os.environ["PYTHON" + "STARTUP"] = x
        import os; os.environ[x] = y
        import os; os.environ |= x
        import os; os.environ = x
        import os; os.environ["PATH"] = x
        import os; os.environ.update(x)
        import os; os.environ.update(PYTHONPATH=x)
        import os; os.environ.update({"PYTHONSTARTUP": x})
        import os; os.environ.setdefault("PYTHONPATH", x)
        import os; os.environ.setdefault(x, y)
        import os; os.environ.__setitem__("PYTHONPATH", x)
        import os; os.environb[b"LD_PRELOAD"] = x
        import os; os.putenv("LD_PRELOAD", x)
        import os; os.putenv(x, y)
        from os import environ; environ["PYTHONPATH"] = x
        from os import environ as e; e[x] = y
        import os; e = os.environ; e["PYTHONPATH"] = x
        import os; left(env={**os.environ, "PYTHONPATH": x})
        import os; left(env=dict(os.environ, PYTHONPATH=x))
        import os; del os.environ["PYTHONPATH"]
        import sys; sys.modules["json"] = x
        import sys; sys.modules[x] = y
        import sys; sys.modules.update(x)
        import sys; sys.modules.setdefault("a", x)
        from sys import modules; modules["json"] = x
        import sys; sys.meta_path.insert(0, x)
        import sys; sys.meta_path[:] = x
        import sys; sys.path_hooks.append(x)
        import sys; sys.path_importer_cache.clear()
        import sys; sys.path.insert(0, x)
        import sys; sys.path = x
        import sys; sys.path[0] = x
        import sys; sys.path += [x]
        import sys; sys.exit = x
        import sys; sys.excepthook = x
        import sys; sys.stdout = x
        import sys; sys._getframe(1).f_globals
        import sys; sys.settrace(x)
        import sys; sys.setprofile(x)
        import threading; threading.settrace(x)
        import threading; threading.setprofile(x)
        import importlib; importlib.invalidate_caches()
        import importlib.util; importlib.util.LazyLoader(x)
        import importlib.machinery; importlib.machinery.PathFinder.find_spec(x)
        import builtins; builtins.len = x
        import builtins; setattr(builtins, "len", x)
        __builtins__.len = x
        __builtins__["len"] = x
        import builtins; vars(builtins)["len"] = x
        import builtins; builtins.__dict__["len"] = x
        import builtins; builtins.__dict__.update(x)
        import gc; gc.get_objects()
        import gc; gc.get_referrers(x)
        import inspect; inspect.currentframe()
        import inspect; inspect.stack()
        import json; json.loads = x
        import json; json.decoder.JSONDecoder.decode = x
        import json as j; j.loads = x
        from json import decoder; decoder.JSONDecoder.decode = x
        import json; setattr(json, "loads", x)
        import json; setattr(json, y, x)
        import json; delattr(json, "loads")
        import json; json.__dict__["loads"] = x
        import os; os.path.join = x
        import os; os._exit(0)
        import os; os.abort()
        import atexit; atexit.register(x)
        import codecs; codecs.register(x)
        import unittest; unittest.TestCase.assertEqual = x
        from unittest import TestCase; TestCase.run = x
        import unittest; unittest.TestResult.wasSuccessful = x
        (lambda: 0).__code__ = x
        import json; (json.loads, json.dumps) = x
        import json; json.loads: object = x
    """,
}


@pytest.mark.parametrize(
    ("path", "code"),
    [(path, line.strip()) for path, text in STEERING.items() for line in text.strip().splitlines()],
)
def test_what_steers_later_code_must_be_declared(path: str, code: str) -> None:
    """That another file of the project does it is no excuse."""
    module = "" if code.startswith("import ") and path == SCRIPT else "x = y = left = 1\n"
    text = module + code.replace("; ", "\n")
    files = {f"src/b{path[-3:]}": "import pytest\nimport atexit\nx._load(y)\n"}
    assert not passes(path, f"{text}\n", files=files)
    assert passes(path, f"\n{text}\n", before=text, files=files)


@pytest.mark.parametrize(
    ("path", "code"),
    [
        (SCRIPT, "process.env.APP_MODE = 'x'"),
        (SCRIPT, "Object.assign(process.env, { APP_MODE: 'x', ['APP_' + 'B']: 'y' })"),
        (SCRIPT, "const a = { ...process.env, APP_MODE: 'x' }"),
        (SCRIPT, "delete process.env.APP_MODE"),
        (SCRIPT, "process.exitCode = 1"),
        (SCRIPT, "module.exports = { a: 1 }"),
        (SCRIPT, "module.exports.a = 1; exports.b = 2"),
        (SCRIPT, "exports.__esModule = true"),
        (SCRIPT, "class A {}\nA.prototype.b = 1\nA.c = 1"),
        (SCRIPT, "const e = new Error('x'); e.code = 'x'"),
        (SCRIPT, "const fs = require('fs'); const s = fs.createReadStream('x'); s.left = 1"),
        (SCRIPT, "const u = require('util'); function B() {}\nu.inherits(B, Object); B.prototype.x = 1"),
        (SCRIPT, "this.constructor.name"),
        (SCRIPT, "const a = {}; a.constructor === Object"),
        (SCRIPT, "const options = {}; Object.assign(options, {a: 1})"),
        (SCRIPT, "const map = Object.create(null); map[process.argv[2]] = 1"),
        (SCRIPT, "Object.freeze(Object.prototype)"),
        (SCRIPT, "const url = require('url'); const u = new url.URL('x:'); u.hash = ''"),
        (SCRIPT, "if (Object.prototype.hasOwnProperty.call({}, 'x')) {}"),
        (PYTHON, "import os\nos.environ['APP_MODE'] = 'x'"),
        (PYTHON, "import os\nos.environ.setdefault('APP_MODE', 'x')"),
        (PYTHON, "import os\nos.environ.update(APP_MODE='x')"),
        (PYTHON, "import os\nenv = dict(os.environ, LANG='C')"),
        (PYTHON, "import os\nos.environ.get('HOME')\nos.environ.pop('APP_MODE', None)"),
        (PYTHON, "import json\nclass A(json.JSONEncoder):\n    pass\nA.x = 1"),
        (PYTHON, "import threading\nt = threading.Thread()\nt.daemon = True"),
        (PYTHON, "import datetime\nx = datetime.datetime.now()\nx.left = 1"),
        (PYTHON, "globals()['x'] = 1"),
        (PYTHON, "class A:\n    def f(self):\n        self.x = 1\n        self.y['z'] = 2"),
        (PYTHON, "import logging\nlog = logging.getLogger()\nlog.propagate = False"),
        (PYTHON, "'see PYTHONPATH in the documentation'"),
        (PYTHON, "import sys\nsys.stdout.write('x')\nsys.exit(1)"),
    ],
)  # fmt: skip
def test_an_ordinary_write_steers_nothing(path: str, code: str) -> None:
    assert passes(path, f"{code}\n"), judged(path, f"{code}\n").log
