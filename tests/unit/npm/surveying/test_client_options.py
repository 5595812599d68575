"""Options of npm, yarn, pnpm and bun: what takes a word is as npm's own definitions say."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from fallback_plugins.npm.surveying.client_options import takes_word
from fallback_plugins.npm.surveying.commands import Commands
from tests.unit.shared.recipes import repository

_DEFINED = """
const {definitions} = require(process.argv[1])
const isFlag = type => [Boolean, true, false].includes(type)
const isEmpty = type => type === null || type === undefined
const kinds = Object.entries(definitions).map(([name, {type}]) => {
  const types = [].concat(type).filter(it => !isEmpty(it))
  return [name, types.some(isFlag), types.some(it => !isFlag(it))]
})
console.log(JSON.stringify(kinds))
"""


def test_npms_own_definitions_agree() -> None:
    npm, node = shutil.which("npm"), shutil.which("node")
    assert npm is not None
    assert node is not None
    root = subprocess.run([npm, "root", "-g"], capture_output=True, text=True, check=True)
    home = Path(root.stdout.strip(), "npm")
    definitions = home / "node_modules" / "@npmcli" / "config" / "lib" / "definitions"
    if not definitions.is_dir():
        pytest.skip("this npm has its definitions elsewhere")
    run = subprocess.run(
        [node, "-e", _DEFINED, str(definitions)], capture_output=True, text=True, check=True
    )
    kinds = json.loads(run.stdout)
    assert len(kinds) > 100
    wrong = {
        name
        for name, is_flag, has_value in kinds
        if is_flag != has_value and takes_word("npm", f"--{name}") != has_value
    }
    # Older releases of npm take these for flags, and install the next word.
    assert wrong <= {"allow-scripts", "name"}


@pytest.mark.parametrize(
    ("command", "packages"),
    [
        ("npm install --loglevel error left", {"left"}),
        ("npm install --maxsockets 1 --fetch-retries 5 left", {"left"}),
        ("npm install -w left right", {"right"}),
        ("npm install --save-exact true left", {"left"}),
        ("pnpm add -w left", {"left"}),
        ("pnpm add --reporter silent left", {"left"}),
        ("pnpm -F right add left", {"left"}),
        ("pnpm dlx -c left", {"left"}),
        ("yarn add -W --mode skip-build left", {"left"}),
        ("yarn workspace right add left", {"left"}),
        ("yarn install --prod false", set()),
        ("bun add --backend hardlink left", {"left"}),
        ("npx --loglevel error left", {"left"}),
        ("npx -p left right", {"left"}),
        ("npm install --user left", {"left"}),
        ("npm install --tag= left", {"left"}),
        ("npm install --tag next true", {"true"}),
        ("npm i i left", {"i", "left"}),
        ("pnpm --prefix sub add left", {"left"}),
        ("pnpm --unheard-of sub add left", {"left"}),
        ("npm --silent run add left", set()),
        ("yarn --prefix /x global add left", {"left"}),
    ],
)
def test_words_that_are_packages(tmp_path: Path, command: str, packages: set[str]) -> None:
    repo = repository(tmp_path, {"ci.sh": f"{command}\n"})
    found = Commands.of(repo).found
    assert {name for one in found for name, _ in one.packages} == packages


@pytest.mark.parametrize(
    "command", ["npm run ci", "npm --silent run ci", "yarn run install", "npm t"]
)
def test_a_script_with_the_name_of_a_verb_installs_nothing(tmp_path: Path, command: str) -> None:
    found = Commands.of(repository(tmp_path, {"ci.sh": f"{command}\n"})).found
    assert [one.installs for one in found] == [False]
