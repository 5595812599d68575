"""What judges a fix outside the tests' own folders is no patch's to change; what is product, is."""

import json
import lzma
from pathlib import Path

import pytest

from fallback_tier.patch.judging import Judging, is_called_like_a_test
from fallback_tier.patch.policy import forbidden_reason
from tests.fakes.repository import context

DATA = Path(__file__).parents[4] / "shared/data/solved-examples.jsonl.xz"
LOADED, IMPORTED = "the configuration of a test runner loads it", "tests are judged with it"

PYTHON = {
    "pyproject.toml": '[project]\nname = "Left-Pad"\n'
    '[tool.pytest.ini_options]\naddopts = "-q -p watch"\n',
    "tox.ini": "[testenv]\ncommands =\n    mkdir -p outside\n    pytest -p fixed_of\n",
    "setup.py": "setup(entry_points={'console_scripts':\n"
    "    ['serve = served.app:main', 'test = ran.all:main']})\n",
    "Makefile": "nightly:\n\tpython3 -m jobs.nightly\ncheck:\n\tpython -m testing.everything\n",
    "served/app.py": "from served import deep\n",
    "served/deep.py": "\n",
    "jobs/nightly.py": "\n",
    "backends/quick.py": "\n",
    "ran/all.py": "\n",
    "testing/everything.py": "\n",
    "outside/__init__.py": "\n",
    "fixed_of.py": "\n",
    "watch.py": "\n",
    "left_pad/__init__.py": "from .core import pad\n",
    "left_pad/core.py": "import os\nBACKEND = 'backends.quick.Client'\n",
    "left_pad/alone.py": "from left_pad import testing\n",
    "left_pad/testing/__init__.py": "from . import (\n    asserts,  # both\n    more as less,\n)\n",
    "left_pad/testing/asserts.py": "\n",
    "left_pad/testing/more.py": "\n",
    "left_pad/testing/unused.py": "\n",
    "left_pad/test_client.txt": "\n",
    "left_pad/mock_server.py": "\n",
    "testutils.py": "import helpers_of_helpers\n",
    "helpers_of_helpers.py": "\n",
    "support/verify.py": "from left_pad import core\n",
    "fixtures/checks.py": "\n",
    "fixtures/expected.json": "{}\n",
    "fixtures/initial.json": "{}\n",
    "plugins_of/fixed.py": "\n",
    "conftest.py": 'pytest_plugins = ["plugins_of.fixed"]\n',
    "tests/test_core.py": "import testutils, left_pad.alone\nfrom support import verify\n"
    "import left_pad.mock_server, served.app, served.deep, jobs.nightly, backends.quick, ran.all\n"
    "import testing.everything\n"
    "run('fixtures/checks.py'); read('expected.json')\n",
}
JAVASCRIPT = {
    "package.json": json.dumps(
        {
            "main": "./lib/index.js",
            "scripts": {
                "start": "node serve.js",
                "test": "node --require ./hooks/first.js --import=./hooks/second.mjs run.js",
            },
            "jest": {"setupFilesAfterEnv": ["<rootDir>/config/setup.js"]},
            "ava": {"require": ["./config/ava-first.js"]},
        }
    ),
    "lib/index.js": "const a = require('./a'); import('../lib/mock.js')\n",
    "lib/a.js": "\n",
    "lib/mock.js": "\n",
    "lib/alone.js": "\n",
    "serve.js": "\n",
    "examples/a.js": "\n",
    "index-fetch.js": "\n",
    "src/built.ts": "\n",
    "run.js": "\n",
    "hooks/first.js": "\n",
    "hooks/second.mjs": "\n",
    "config/setup.js": "require('../config/more')\n",
    "config/more.ts": "\n",
    "config/ava-first.js": "\n",
    "config/mocha-first.js": "\n",
    "config/vitest-first.ts": "\n",
    "jest/setup.js": "\n",
    "jest.config.js": "module.exports = { setupFiles: ['./jest/setup', './lib/a.js'] }\n",
    ".mocharc.yml": "require:\n  - ./config/mocha-first.js\n",
    "vitest.config.ts": "export default { test: { setupFiles: ['./config/vitest-first.ts'] } }\n",
    "src/setupTests.js": "\n",
    "test-helpers/index.js": "\n",
    "test/a.js": "require('../lib/alone'); require('../test-helpers'); "
    "import x from '../lib'; import '../index-fetch'; import '../src/built'; require('../examples/a')\n",
}


@pytest.mark.parametrize(
    ("files", "path", "message"),
    [
        (PYTHON, "testutils.py", IMPORTED),
        (PYTHON, "helpers_of_helpers.py", IMPORTED),
        (PYTHON, "support/verify.py", IMPORTED),
        (PYTHON, "fixtures/checks.py", IMPORTED),
        (PYTHON, "fixtures/expected.json", IMPORTED),
        (PYTHON, "left_pad/mock_server.py", IMPORTED),
        # They are named, and it may be to run the tests.
        (PYTHON, "ran/all.py", IMPORTED),
        (PYTHON, "testing/everything.py", IMPORTED),
        (PYTHON, "plugins_of/fixed.py", LOADED),
        (PYTHON, "watch.py", LOADED),
        (PYTHON, "fixed_of.py", LOADED),
        (JAVASCRIPT, "hooks/first.js", LOADED),
        (JAVASCRIPT, "hooks/second.mjs", LOADED),
        (JAVASCRIPT, "run.js", LOADED),
        (JAVASCRIPT, "config/setup.js", LOADED),
        (JAVASCRIPT, "config/ava-first.js", LOADED),
        (JAVASCRIPT, "config/mocha-first.js", LOADED),
        (JAVASCRIPT, "config/vitest-first.ts", LOADED),
        (JAVASCRIPT, "config/more.ts", IMPORTED),
        (JAVASCRIPT, "jest/setup.js", LOADED),
        (JAVASCRIPT, "test-helpers/index.js", IMPORTED),
    ],
)
def test_what_judges_is_not_edited(
    tmp_path: Path, files: dict[str, str], path: str, message: str
) -> None:
    assert forbidden_reason(path) is None
    assert str(Judging.of(context(tmp_path, files)).reason(path)).startswith(message)


@pytest.mark.parametrize(
    ("files", "paths"),
    [
        (PYTHON, ("left_pad/core.py", "left_pad/alone.py", "fixtures/initial.json")),
        # Called like tests, and the product's own: ``alone`` imports them.
        (PYTHON, ("left_pad/testing/__init__.py", "left_pad/testing/asserts.py")),
        (PYTHON, ("left_pad/testing/more.py", "outside/__init__.py", "no/such.py")),
        # Nothing imports them: an entry point, a script and a text name them.
        (PYTHON, ("served/app.py", "served/deep.py", "jobs/nightly.py", "backends/quick.py")),
        (
            JAVASCRIPT,
            (
                "lib/index.js",
                "lib/a.js",
                "lib/mock.js",
                "lib/alone.js",
                "serve.js",
                "examples/a.js",
            ),
        ),
        # Nothing tells where the product is: what tests import may well be it.
        ({"a/core.py": "\n", "a/test_a.py": "from core import x\n"}, ("a/core.py",)),
        ({"app.js": "\n", "test/a.js": "require('../app')\n"}, ("app.js",)),
        ({"package.json": "[", "index.js": "\n", "test.js": "require('./index')\n"}, ("index.js",)),
    ],
)
def test_what_is_product_may_be(
    tmp_path: Path, files: dict[str, str], paths: tuple[str, ...]
) -> None:
    judging = Judging.of(context(tmp_path, files))
    assert {path: judging.reason(path) for path in paths} == dict.fromkeys(paths)


def test_by_convention_set_up_too() -> None:
    """react-scripts loads it, and no configuration says so."""
    assert forbidden_reason("src/setupTests.js") is not None
    assert forbidden_reason("src/setupTests.ts") is not None


def test_few_real_fixes_edit_what_is_called_like_a_part_of_tests() -> None:
    """Of 642 fixes these alone touch such a file: only they could be refused for its name."""
    if not DATA.exists():
        pytest.skip("../shared/data is not here")
    found = set()
    with lzma.open(DATA, "rt", encoding="utf-8") as lines:
        for line in lines:
            fix = json.loads(line)
            for path in fix["files"]:
                if forbidden_reason(path) is None and is_called_like_a_test(path):
                    found.add((fix["id"], path))
    # The first and the fourth run tests; the second and the third are drivers for tests that products ship.
    assert found == {
        ("CVE-2020-28271", "runTests.sh"),
        ("PYSEC-2026-689", "nova/virt/fake.py"),
        ("PYSEC-2023-196", "vantage6-client/vantage6/tools/mock_client.py"),
        ("PYSEC-2026-2126", "changedetectionio/run_basic_tests.sh"),
        ("PYSEC-2021-865", "tests_website/index.html"),
    }


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("Makefile", "check:\n\tpython -m support.verify\n"),
        ("Makefile", "all:\n\tpytest -m support.verify\n"),
        ("Makefile", "all:\n\tpython -m pytest -m support.verify\n"),
        ("release.sh", "git commit -m support.verify\n"),
        ("ci.sh", "python -m support.verify\n"),
        ("setup.py", "setup(entry_points={'pytest11': ['own = support.verify:Plugin']})\n"),
        ("setup.cfg", "[options.entry_points]\npytest11 =\n    own = support.verify:Plugin\n"),
    ],
)
def test_what_is_named_to_judge_is_no_product(tmp_path: Path, path: str, text: str) -> None:
    repo = context(tmp_path, PYTHON | {path: text})
    assert (Judging.of(repo).reason("support/verify.py") or "").startswith(IMPORTED)
