"""npm's ranges are read as npm itself reads them: its own semver is the witness."""

import json
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from fallback_plugins.npm.manifests.specs import admits

_NPM = shutil.which("npm")

_SATISFIES = """
const semver = require(process.argv[1]);
const asked = JSON.parse(require("fs").readFileSync(0));
const answer = ([range, version]) => semver.validRange(range) && semver.satisfies(version, range);
console.log(JSON.stringify(asked.map(answer)));
"""


def _version(chance: random.Random) -> str:
    numbers = ".".join(str(chance.choice((0, 0, 1, 1, 2, 3))) for _ in range(3))
    return numbers + chance.choice(("", "", "", "-0", "-alpha", "-beta.1", "-rc.1"))


def _partial(chance: random.Random) -> str:
    given = chance.choice((1, 2, 3, 3, 3))
    if given == 3:
        return _version(chance)
    numbers = [str(chance.randrange(3)) for _ in range(given)]
    return ".".join([*numbers, *chance.choice(([], ["x"], ["*"]))])


def _range(chance: random.Random) -> str:
    def comparator() -> str:
        return chance.choice(("", "", "=", "v", "^", "~", ">", ">=", "< ", "<= ")) + _partial(
            chance
        )

    form = chance.choice(("{}", "{}", "{} {}", "{} || {}", "-"))
    if form == "-":
        return f"{_partial(chance)} - {_partial(chance)}"
    return form.format(comparator(), comparator())


def test_ranges_admit_what_npm_admits() -> None:
    if _NPM is None:
        pytest.skip("npm is not installed")
    root = subprocess.run([_NPM, "root", "-g"], capture_output=True, text=True, check=True)
    semver = Path(root.stdout.strip(), "npm", "node_modules", "semver")
    chance = random.Random(7)
    asked = [(_range(chance), _version(chance)) for _ in range(5_000)]
    asked += [
        ("1.1.0-beta.1", "1.1.0"),
        ("~1.0.0-rc.1", "1.0.1"),
        ("<2", "2.0.0-rc.1"),
        ("", "1.0.0"),
    ]
    run = subprocess.run(
        ["node", "-e", _SATISFIES, str(semver)],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=True,
    )
    answers = json.loads(run.stdout)
    assert sum(answer is True for answer in answers) > 500
    different = [
        (*pair, answer)
        for pair, answer in zip(asked, answers, strict=True)
        if answer is not None and admits(*pair) != answer
    ]
    assert different == []
