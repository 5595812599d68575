"""Manifests and locks of the right form with the wrong things in them: other types, other words."""

import json
import random
from collections.abc import Mapping
from typing import Any

#: Words that readers look for, and that a document may have in the wrong place.
_KEYS = """\
dependencies devDependencies optionalDependencies workspaces packages overrides resolutions pnpm
name version lockfileVersion left right node_modules/left requires link resolved peer snapshots
importers . specifiers specifier left@1.0.0 private repository url scripts test packageManager
project optional-dependencies dependency-groups tool poetry uv sources hatch envs default develop
_meta hash package metadata source registry wheels marker extras group main workspace members
dynamic python content-hash lock-version files groups include-group urls virtual git path
""".split()  # noqa: SIM905 (a list of them would be a page)

_TEXTS = """\
left==1.0.0
left
1.0.0
^1.0.0
*
npm:left@1.0.0
workspace:*
file:..
git+https://x/y
latest

==1.0.0
left>=1; python_version<'3'
left[a]==1.0.0
left @ https://e/x.whl
catalog:
$left
..
/
pk/*
!pk
**
a b
>=1 <2
""".splitlines()

_SCALARS = (0, 1, -1, 3, 2**70, 1.5, True, False, None)

#: Read as JSON (YAML is a superset of it).
JSON: Mapping[str, dict[str, Any]] = {
    "package.json": {
        "name": "app",
        "version": "1.0.0",
        "workspaces": ["pk/*"],
        "dependencies": {"left": "1.0.0"},
        "devDependencies": {"right": "^1.0.0"},
        "overrides": {"left": "1.0.0"},
        "resolutions": {"left": "1"},
        "pnpm": {"overrides": {"left": "1.0.0"}},
        "repository": {"url": "x"},
    },
    "package-lock.json": {
        "name": "app",
        "lockfileVersion": 2,
        "packages": {
            "": {"dependencies": {"left": "1.0.0"}},
            "node_modules/left": {"version": "1.0.0", "dependencies": {"right": "^1"}},
            "node_modules/right": {"version": "1.0.0", "dev": True},
        },
        "dependencies": {"left": {"version": "1.0.0", "requires": {"right": "1"}}},
    },
    "pnpm-lock.yaml": {
        "lockfileVersion": "9.0",
        "importers": {".": {"dependencies": {"left": {"specifier": "1.0.0", "version": "1.0.0"}}}},
        "packages": {"left@1.0.0": {"resolution": {"integrity": "x"}}},
        "snapshots": {"left@1.0.0": {"dependencies": {"right": "1.0.0"}}},
    },
    "lerna.json": {"packages": ["pk/*"]},
    "tsconfig.json": {"references": [{"path": "x"}], "compilerOptions": {"strict": True}},
    "Pipfile.lock": {
        "_meta": {"hash": {"sha256": "x"}, "sources": [{"name": "pypi", "url": "x"}]},
        "default": {"left": {"version": "==1.0.0", "hashes": ["x"], "markers": "x"}},
        "develop": {"right": {"version": "==1.0.0"}},
    },
}

TOML: Mapping[str, dict[str, Any]] = {
    "pyproject.toml": {
        "project": {
            "name": "app",
            "version": "1",
            "dependencies": ["left==1.0.0"],
            "optional-dependencies": {"a": ["left"]},
        },
        "dependency-groups": {"dev": ["left==1.0.0", {"include-group": "x"}]},
        "tool": {
            "poetry": {
                "dependencies": {"left": "1.0.0", "right": {"version": "^1", "extras": ["a"]}},
                "group": {"dev": {"dependencies": {"left": "*"}}},
            },
            "uv": {"constraint-dependencies": ["left==1.0.0"], "sources": {"left": {"git": "x"}}},
            "hatch": {"envs": {"default": {"dependencies": ["left"]}}},
        },
    },
    "uv.lock": {
        "version": 1,
        "package": [
            {
                "name": "left",
                "version": "1.0.0",
                "source": {"registry": "x"},
                "dependencies": [{"name": "right", "specifier": ">=1"}],
                "wheels": [{"url": "x", "hash": "y"}],
            },
            {
                "name": "app",
                "source": {"editable": "."},
                "metadata": {"requires-dist": [{"name": "left", "specifier": "==1.0.0"}]},
                "dependencies": [{"name": "left"}],
            },
        ],
        "manifest": {"members": ["app"], "overrides": [{"name": "left"}]},
    },
    "poetry.lock": {
        "package": [
            {
                "name": "left",
                "version": "1.0.0",
                "files": [{"file": "x", "hash": "y"}],
                "dependencies": {"right": {"version": "^1", "optional": True}},
                "extras": {"a": ["b"]},
                "source": {"type": "git", "url": "x"},
            }
        ],
        "metadata": {"lock-version": "2.0", "content-hash": "x"},
    },
    "pdm.lock": {"package": [{"name": "left", "version": "1.0.0"}], "metadata": {"groups": ["a"]}},
    "pylock.toml": {"packages": [{"name": "left", "version": "1.0.0"}]},
    "Pipfile": {
        "packages": {"left": "==1.0.0", "right": {"version": "*", "extras": ["a"]}},
        "source": [{"url": "x", "name": "pypi"}],
    },
}

#: Read line by line.
LINES: Mapping[str, list[str]] = {
    "yarn.lock": """\
# yarn lockfile v1

left@1.0.0:
"left@^1.0.0", left@1:
  version "1.0.0"
  dependencies:
    right "^1.0.0"
  version 1
:
    "a b"
left:
"@a/left@npm:1":
  version "x\\"
""".splitlines(),
    "pnpm-workspace.yaml": ["packages:", "  - 'pk/*'", "- x", "overrides:", "a: &a [*a]", "\t"],
    "requirements.txt": """\
left==1.0.0
-r other.txt
left[a]==1.0.0 ; python_version<'3' # x
left==1.0.0 \\
-e .
${A}
git+https://x#egg=left
left===1.0
left == 1.*
LEFT>1,<2

left @ file:///x
-r ../../x
left==
""".splitlines(),
    "setup.cfg": """\
[options]
install_requires =
    left==1.0.0
  left
[metadata]
name = left
= y
%(x)s
[mypy]
""".splitlines(),
    "setup.py": ["from setuptools import setup", "setup(name='left')", "setup(", "'left==1.0.0'"],
}

NPM = ("package.json", "package-lock.json", "pnpm-lock.yaml", "yarn.lock", "pnpm-workspace.yaml")
NPM_SETTINGS = ("lerna.json", "tsconfig.json")
PYTHON = (*TOML, "Pipfile.lock", "requirements.txt", "setup.cfg", "setup.py")


def odd_text(name: str, random: random.Random) -> str:
    """A text for a file of this name."""
    if name in LINES:
        return "\n".join(random.choice(LINES[name]) for _ in range(random.randint(0, 9)))
    if name in TOML:
        return "".join(
            f"{json.dumps(k)} = {toml(v)}\n" for k, v in _odd(TOML[name], random).items()
        )
    return json.dumps(_odd(JSON[name], random))


def toml(value: Any) -> str:
    """A value as TOML on one line; what TOML doesn't have becomes something that it has."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value if abs(value) < 2**63 else 7)
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(k)} = {toml(v)}' for k, v in value.items())}}}"
    return json.dumps("" if value is None else value)


def _odd(document: dict[str, Any], random: random.Random) -> dict[str, Any]:
    """A document with some of its values exchanged, removed, or given another name."""
    made: dict[str, Any] = json.loads(json.dumps(document))
    for _ in range(random.randint(1, 4)):
        _change(made, random)
    return made


def _change(value: Any, random: random.Random) -> None:
    """One change somewhere below an object or a list."""
    keys: list[Any] = [*value] if isinstance(value, dict) else [*range(len(value))]
    if not keys:
        return
    key = random.choice(keys)
    if isinstance(value[key], dict | list) and value[key] and random.randint(0, 9) > 2:
        _change(value[key], random)
    elif random.randint(0, 9) > 2 or isinstance(value, list):
        value[key] = _value(random)
    else:
        value[random.choice(_KEYS)] = value.pop(key)


def _value(random: random.Random, depth: int = 0) -> Any:
    kind = random.randint(0, 9 if depth < 3 else 5)
    if kind < 4:
        return random.choice(_TEXTS)
    if kind < 6:
        return random.choice(_SCALARS)
    if kind < 8:
        return [_value(random, depth + 1) for _ in range(random.randint(0, 3))]
    return {random.choice(_KEYS): _value(random, depth + 1) for _ in range(random.randint(0, 4))}
