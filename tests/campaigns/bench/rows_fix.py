"""A whole fix against its floor: the bare client calls and test runs that its proof needs, in one script.

Ours is ``fallback-tier fix --dry-run`` with a proof. The floor's script installs what the base commit
declares, sees the proof fail and the suite pass, puts the known patch on, installs again, sees both pass,
and puts everything back: in the repository itself, without a sandbox, a record or a second copy of a thing.

*Cold*: a fresh state folder, and a floor that installs; the clients' own caches are filled on both sides.
*Warm*: ours has fixed this commit before, and the floor's two installed sets are there.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.campaigns.bench.measure import Command, Processes
from tests.campaigns.bench.row import Bench, Pair, Row
from tests.campaigns.bench.targets import NPM, REQUIREMENTS, Kind, Target

_PYTHON_TEST = """\
import unittest
from importlib.metadata import version

import jinja2


class AppTest(unittest.TestCase):
    def test_it_renders(self):
        self.assertEqual(jinja2.Template("{{ a }}").render(a=1), "1")
"""
_PYTHON_PROOF = """\
import unittest
from importlib.metadata import version


class ProofTest(unittest.TestCase):
    def test_the_fixed_release_is_there(self):
        self.assertEqual(version("jinja2"), "3.1.4")
"""
_NPM_TEST = "require('assert').equal(require('lodash').last([1, 2]), 2); console.log('1 passing')\n"
_NPM_PROOF = (
    "const {test} = require('node:test')\n"
    "test('the fixed release is there', () =>\n"
    "  require('assert').equal(require('lodash/package.json').version, '4.17.21'))\n"
)

#: Both floors have these steps; ``install N`` makes the installed set N where it is not there.
_FLOOR = """\
set -e
{functions}
both() {{ cp ../{proof} .; proved || failed=1; rm {proof}; suite; }}
failed=0; install 0; both; test $failed = 1
{patch}
failed=0; install 1; both; test $failed = 0
git checkout --quiet --force HEAD -- .
"""
_PYTHON_FLOOR = """\
install() {{ py=../venv-$1/bin/python; test -d ../venv-$1 || {{
  {uv} venv --quiet ../venv-$1; {uv} pip install --quiet --python $py -r requirements.txt; }}; }}
proved() {{ $py -m unittest proof_test.py; }}
suite() {{ $py -m unittest discover; }}
"""
_NPM_FLOOR = """\
install() { rm -rf node_modules; if test -d ../modules-$1; then cp -al ../modules-$1 node_modules; else
  npm ci --ignore-scripts --no-audit --no-fund; cp -al node_modules ../modules-$1; fi; }
proved() { node --test proof_test.js; }
suite() { npm test; }
"""
_NPM_PATCH = "npm install --package-lock-only --ignore-scripts --no-audit --no-fund lodash@4.17.21"


@dataclass(frozen=True)
class Subject:
    """A kind of repository with a suite, and how its fix is proved. ``sets``: what a floor installed."""

    kind: Kind
    proof: str
    text: str
    command: str
    floor: Callable[[Bench], str]
    patch: str
    sets: tuple[str, ...]


def _with(kind: Kind, more: Mapping[str, str]) -> Kind:
    return replace(kind, files={**kind.files, **more})


_PYTHON = Subject(
    kind=_with(REQUIREMENTS, {"test_app.py": _PYTHON_TEST}),
    proof="proof_test.py",
    text=_PYTHON_PROOF,
    command="python -m unittest proof_test.py",
    floor=lambda bench: _PYTHON_FLOOR.format(uv=bench.our("uv")),
    patch="sed -i s/jinja2==3.1.2/jinja2==3.1.4/ requirements.txt",
    sets=("venv-0", "venv-1"),
)
_MANIFEST = NPM.files["package.json"].replace(
    '"private": true', '"private": true,\n  "scripts": {"test": "node test.js"}'
)
_NPM = Subject(
    kind=_with(
        NPM, {"package.json": _MANIFEST, "test.js": _NPM_TEST, ".gitignore": "node_modules\n"}
    ),
    proof="proof_test.js",
    text=_NPM_PROOF,
    command="node --test proof_test.js",
    floor=lambda _: _NPM_FLOOR,
    patch=_NPM_PATCH,
    sets=("modules-0", "modules-1"),
)


def _pair(
    subject: Subject, files: int, *, warm: bool
) -> Callable[[Bench], AbstractContextManager[Pair]]:
    @contextmanager
    def prepared(bench: Bench) -> Iterator[Pair]:
        filling = {f"data-{n % 50}/{n}.txt": f"{n}\n" * 20 for n in range(files)}
        target = Target.create(bench.place, _with(subject.kind, filling))
        proof = bench.place / subject.proof
        proof.write_text(subject.text)
        given = ["--proof", subject.command, "--proof-file", proof]
        state = ["--state-dir", target.state, "--keys", bench.place / "keys"]
        own = ["--advisory", target.advisory, "--dry-run", *state, *given]
        fix = Command([bench.our("fallback-tier"), "fix", target.root, *own], bench.place)
        ours = Processes("fallback-tier fix", [fix], _cold(bench.place, "state", "keys", warm=warm))
        script = bench.place / "floor.sh"
        steps = subject.floor(bench)
        script.write_text(_FLOOR.format(functions=steps, proof=subject.proof, patch=subject.patch))
        floor = Command(["sh", script], target.root)
        yield Pair(ours, Processes("floor", [floor], _cold(bench.place, *subject.sets, warm=warm)))

    return prepared


def _cold(place: Path, *folders: str, warm: bool) -> list[Command]:
    return [] if warm else [Command(["rm", "-rf", *folders], place)]


def _rows() -> Iterator[Row]:
    for name, subject in (("python", _PYTHON), ("npm", _NPM)):
        for size, files, rounds in (("small", 0, 7), ("5000", 5000, 5)):
            for state, limit in (("cold", 1.3), ("warm", 1.15)):
                yield Row(
                    f"fix-{name}-{size}-{state}",
                    f"Whole fix against its floor: {name}, {size}, {state}",
                    "0",  # what a user feels, before the numbered ones
                    limit,
                    rounds,
                    _pair(subject, files, warm=state == "warm"),
                )


ROWS = tuple(_rows())
