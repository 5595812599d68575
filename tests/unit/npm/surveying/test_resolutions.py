"""A lock that does not answer what its manifests require is resolved by the project's own client; without a
registry nothing is called clean because of it: the file is named, with the command that repairs it."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.npm import build_ecosystem
from fallback_plugins.npm.client import Files
from fallback_plugins.npm.clients.by_lock import client_for
from fallback_plugins.npm.clients.pnpm import PNPM
from fallback_plugins.npm.clients.yarn import YARN
from fallback_plugins.npm.project import NpmProject
from fallback_plugins.npm.surveying import resolutions
from fallback_plugins.npm.surveying.projects import discover
from fallback_plugins.npm.surveying.survey import survey
from fallback_tier.advisory import AdvisorySet, bundle
from fallback_tier.errors import RecipeError
from fallback_tier.outcome import NotApplicable, Selected
from fallback_tier.planning import divisible_plan
from fallback_tier.repo import Settings
from tests.choice import a_choice
from tests.registry import Universe
from tests.unit.npm.world import at, bad, lock, manifest, project, versions, world
from tests.unit.shared.real_clients import provisioned
from tests.unit.shared.recipes import FakeClients, repository

LEAF = bad("leaf", ("0", "1.2.0"))
REPAIR = "npm install --package-lock-only"


def universe() -> Universe:
    found = Universe().npm("other", "1.0.0").npm("other", "2.0.0", {"leaf": "1.0.0"})
    found.npm("alone", "1.0.0").npm("create-alone", "1.0.0")
    for name in ("create-other", "@s/create-other"):
        found.npm(name, "1.0.0", {"leaf": "1.0.0"})
    for version in ("1.0.0", "1.1.0", "1.2.0", "1.3.0", "1.4.0"):
        found.npm("leaf", version)
    return found


def drifted(
    asked: Mapping[str, str], locked: Mapping[str, str], version: int = 3, **sections: Any
) -> dict[str, str]:
    """package.json asks for these; its lock was made of exactly those, and for the same other sections."""
    entries = {name: at(held) for name, held in locked.items()}
    text = lock({"dependencies": dict(locked), **sections}, entries, version)
    if version == 1:
        head = {"name": "app", "version": "1.0.0", "lockfileVersion": 1, "requires": True}
        text = json.dumps({**head, "dependencies": entries}, indent=2) + "\n"
    return {"package.json": manifest(dependencies=asked, **sections), "package-lock.json": text}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept resolutions are the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def told(root: Path, files: Mapping[str, str], record: Any = LEAF) -> NotApplicable:
    """What is said offline: no client runs."""
    repo = repository(root / "repo", files).model_copy(update={"settings": Settings(offline=True)})
    selection = build_ecosystem(FakeClients()).select(record, repo)
    assert isinstance(selection, NotApplicable), selection
    return selection


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize(
    ("asked", "locked", "words"),
    [
        ({"leaf": "^1.1.0"}, {}, "leaf ^1.1.0, and the lock holds none of it"),
        ({"leaf": "1.1.0"}, {"leaf": "1.3.0"}, "leaf 1.1.0, and the lock holds leaf 1.3.0"),
        ({"leaf": "^1.4.0"}, {"leaf": "1.3.0"}, "leaf ^1.4.0, and the lock holds leaf 1.3.0"),
        ({"l": "npm:leaf@^1.1.0"}, {}, "l npm:leaf@^1.1.0, and the lock holds none of it"),
    ],
    ids=["nothing of it", "a newer one", "an older one", "an alias"],
)
def test_it_is_never_called_unaffected(
    tmp_path: Path, asked: dict[str, str], locked: dict[str, str], words: str, version: int
) -> None:
    refused = told(tmp_path, drifted(asked, locked, version))
    assert refused.reason is RefusalReason.UNKNOWN
    assert [(it.path, REPAIR in it.next_step) for it in refused.unread] == [
        ("package-lock.json", True)
    ]
    assert (
        f"package-lock.json is out of step with package.json: that requires {words}"
        in refused.sentence
    )
    assert REPAIR in refused.sentence


@pytest.mark.parametrize("missing", ["leaf", "mid"])
def test_what_a_locked_package_requires_and_the_lock_lacks_is_resolved(
    tmp_path: Path, missing: str
) -> None:
    """A person edited the lock, or merged it: the client adds what is missing."""
    found = universe().npm("mid", "1.0.0", {"leaf": "1.0.0"}).npm("mid", "2.0.0")
    found.npm("top", "1.0.0", {"mid": "^1.0.0"}).npm("top", "1.0.1", {"mid": "^2.0.0"})
    entries = {"top": at("1.0.0", mid="^1.0.0"), "mid": at("1.0.0", leaf="1.0.0")}
    entries.pop(missing, None)
    files = {
        "package.json": manifest(dependencies={"top": "^1.0.0"}),
        "package-lock.json": lock({"dependencies": {"top": "^1.0.0"}}, entries),
    }
    assert told(tmp_path / "offline", files).reason is RefusalReason.UNKNOWN
    with world(found, tmp_path) as here:
        result = here.fix(LEAF, files)
    assert [(move.package, move.before) for move in result.moves] == [("leaf", ("1.0.0",))]


def test_what_another_declaration_would_pull_in_is_unknown_too(tmp_path: Path) -> None:
    """``other`` 2.0.0 brings an affected leaf, and nothing here says so."""
    refused = told(tmp_path, drifted({"other": "2.0.0"}, {"other": "1.0.0"}))
    assert refused.reason is RefusalReason.UNKNOWN
    assert "requires other 2.0.0, and the lock holds other 1.0.0" in refused.sentence
    assert "unknown" in refused.sentence


@pytest.mark.parametrize(
    "files",
    [
        drifted({"leaf": "^1.1.0"}, {"leaf": "1.3.0"}),
        drifted({"leaf": "latest", "other": ""}, {"leaf": "1.3.0", "other": "1.0.0-beta.1"}),
        drifted({"other": "!?"}, {"leaf": "1.3.0", "other": "1.0.0"}),
        drifted({"here": "file:here"}, {"here": "file:here"}),
        drifted({}, {}, optionalDependencies={"leaf": "^1.1.0"}),
        drifted({}, {}, peerDependencies={"leaf": "^1.1.0"}),
        drifted({"leaf": "^1.1.0"}, {}, optionalDependencies={"leaf": "^1.1.0"}),
    ],
    ids=["range", "tag and any", "nonsense", "folder", "optional alone", "peer", "optional"],
)
def test_what_needs_no_answer_is_no_drift(tmp_path: Path, files: dict[str, str]) -> None:
    assert told(tmp_path, files).reason is RefusalReason.NOT_AFFECTED


@pytest.mark.parametrize(
    "changed",
    [
        {"optionalDependencies": {"other": "^2.0.0"}},
        {"peerDependencies": {"other": "^2.0.0"}},
        {"dependencies": {"top": "^1.0.0", "here": "file:here"}},
        {"dependencies": {"top": "somebody/top"}},
        {"overrides": {"mid": "1.0.0"}},
        {"overrides": {"top": {"mid": "1.0.0"}}},
        {"overrides": {"mid@2": "1.0.0"}},
        {"overrides": {"app": {"top": {"mid": {".": "1.0.0"}}}}},
    ],
    ids=lambda it: json.dumps(it),
)
@pytest.mark.parametrize("is_kept", [False, True], ids=["drifted", "in step"])
def test_a_lock_is_in_step_with_every_section(
    tmp_path: Path, changed: dict[str, Any], *, is_kept: bool
) -> None:
    """npm installs what a person added to package.json since, also optional packages, peers and overrides;
    the same lines are no drift in a lock that was made for them."""
    before = {"dependencies": {"top": "^1.0.0"}}
    wanted = {**before, **changed}
    held = "1.0.0" if is_kept else "2.0.0"
    entries = {"top": at("1.0.0", mid=">=1"), "mid": at(held)}
    files = {
        "package.json": manifest(**wanted),
        "package-lock.json": lock(wanted if is_kept else before, entries),
    }
    expected = RefusalReason.NOT_AFFECTED if is_kept else RefusalReason.UNKNOWN
    assert told(tmp_path, files).reason is expected


@pytest.mark.parametrize(
    "changed",
    [
        {"optionalDependencies": {"other": "^2.0.0"}},
        {"dependencies": {"top": "^1.0.0", "x": "npm:other@^2.0.0"}},
        {"resolutions": {"mid": "1.0.0"}},
        {"resolutions": {"**/top/**/mid": "1.0.0"}},
        {"resolutions": {"top/mid": "1.0.0"}},
        {"resolutions": {"mid": "npm:leaf@2.0.0"}},
        {},
    ],
    ids=lambda it: json.dumps(it),
)
def test_a_lock_of_yarn_is_in_step_with_every_section(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    blocks = {"top@^1.0.0": ("1.0.0", "mid"), "mid@>=1": ("2.0.0", ""), "x@^1.0.0": ("1.0.0", "")}
    text = "# yarn lockfile v1\n"
    for pattern, (version, asked) in blocks.items():
        more = f'  dependencies:\n    {asked} ">=1"\n' if asked else ""
        text += f'\n\n"{pattern}":\n  version "{version}"\n{more}'
    wanted = {"dependencies": {"top": "^1.0.0"}, **changed}
    files = {"package.json": manifest(**wanted), "yarn.lock": text}
    expected = RefusalReason.UNKNOWN if changed else RefusalReason.NOT_AFFECTED
    assert told(tmp_path, files).reason is expected


_PNPM = """lockfileVersion: '9.0'

settings:
  autoInstallPeers: true
  excludeLinksFromLockfile: false
{head}
importers:

  .:
    dependencies:
      top:
        specifier: '{spec}'
        version: 1.0.0

packages:

  mid@2.0.0:
    resolution: {{integrity: sha512-AA==}}

  top@1.0.0:
    resolution: {{integrity: sha512-AA==}}

snapshots:

  mid@2.0.0: {{}}

  top@1.0.0:
    dependencies:
      mid: 2.0.0
"""

_CATALOG = "\ncatalogs:\n  default:\n    top:\n      specifier: ^1.0.0\n      version: 1.0.0\n"


@pytest.mark.parametrize(
    ("changed", "workspace", "head", "is_kept"),
    [
        ({"optionalDependencies": {"other": "^2.0.0"}}, "", "", False),
        ({"peerDependencies": {"other": "^2.0.0"}}, "", "", False),
        ({"peerDependencies": {"top": "^1.0.0"}}, "", "", True),
        ({"dependencies": {"top": "npm:other@^1.0.0"}}, "", "", False),
        ({"dependencies": {"top": "next"}}, "", "", False),
        ({"pnpm": {"overrides": {"mid": "1.0.0"}}}, "", "", False),
        ({"pnpm": {"overrides": {"mid": "2.0.0"}}}, "", "\noverrides:\n  mid: 2.0.0\n", True),
        ({"resolutions": {"mid": "1.0.0"}}, "", "\noverrides:\n  mid: 2.0.0\n", False),
        ({"pnpm": {"packageExtensions": {"top": {"dependencies": {"x": "1"}}}}}, "", "", False),
        ({"pnpm": {"packageExtensions": {"top@1": {"dependencies": {"mid": "2"}}}}}, "", "", True),
        ({"pnpm": {"packageExtensions": {"top@2": {"dependencies": {"x": "1"}}}}}, "", "", True),
        ({"pnpm": {"packageExtensions": {"top": {"dependencies": {"mid": "^1"}}}}}, "", "", False),
        ({}, "packageExtensions:\n  top:\n    dependencies:\n      x: '1'\n", "", False),
        ({"pnpm": {"patchedDependencies": {"mid@2.0.0": "p/mid.patch"}}}, "", "", True),
        ({}, "overrides:\n  mid: 1.0.0\n", "", False),
        ({"dependencies": {"top": "catalog:"}}, "catalog:\n  top: ^1.0.0\n", _CATALOG, True),
        ({"dependencies": {"top": "catalog:"}}, "catalog:\n  top: ^0.9.0\n", _CATALOG, False),
        ({}, "", "", True),
    ],
)
def test_a_lock_of_pnpm_is_in_step_with_every_section(
    tmp_path: Path, changed: dict[str, Any], workspace: str, head: str, *, is_kept: bool
) -> None:
    """What pnpm's workspace file says counts, too."""
    wanted = {"dependencies": {"top": "^1.0.0"}, **changed}
    spec = "catalog:" if wanted["dependencies"]["top"] == "catalog:" else "^1.0.0"
    files = {
        "package.json": manifest(**wanted),
        "pnpm-lock.yaml": _PNPM.format(head=head, spec=spec),
    }
    if workspace:
        files["pnpm-workspace.yaml"] = workspace
    expected = RefusalReason.NOT_AFFECTED if is_kept else RefusalReason.UNKNOWN
    assert told(tmp_path, files).reason is expected


@pytest.mark.parametrize(
    ("root", "held", "reason"),
    [
        ({}, "1.1.0", RefusalReason.UNKNOWN),
        ({}, "1.2.0", RefusalReason.NOT_AFFECTED),
        ({"packageManager": "pnpm@9.15.9"}, "1.1.0", RefusalReason.NOT_AFFECTED),
        ({"workspaces": ["p/*"]}, "1.1.0", RefusalReason.UNKNOWN),
    ],
    ids=["affected", "safe", "the project's client is named", "npm's workspace as well"],
)
def test_a_lock_in_a_member_of_pnpms_workspace_is_read(
    tmp_path: Path, root: dict[str, Any], held: str, reason: RefusalReason
) -> None:
    """npm reads it in that folder, since it knows no pnpm-workspace.yaml; with ``workspaces``, if the
    folder is installed alone."""
    member = drifted({"leaf": "^1.0.0"}, {"leaf": held})
    text = (
        "lockfileVersion: '9.0'\n\nimporters:\n\n  p/b:\n    dependencies:\n      leaf:\n"
        "        specifier: ^1.0.0\n        version: 1.3.0\n\npackages:\n\n  leaf@1.3.0:\n"
        "    resolution: {integrity: sha512-AA==}\n\nsnapshots:\n\n  leaf@1.3.0: {}\n"
    )
    files = {
        "package.json": manifest(**root),
        "pnpm-workspace.yaml": "packages:\n  - p/*\n",
        "pnpm-lock.yaml": text,
        **{f"p/b/{path}": it for path, it in member.items()},
    }
    found = told(tmp_path, files)
    assert found.reason is reason
    assert [it.path for it in found.unread] == (
        ["p/b/package-lock.json"] if reason is RefusalReason.UNKNOWN else []
    )


@pytest.mark.parametrize("held", ["1.1.0", "1.2.0"])
@pytest.mark.parametrize("name", ["package-lock.json", "yarn.lock"])
def test_a_lock_of_the_workspaces_own_client_in_a_members_folder_is_read(
    tmp_path: Path, name: str, held: str
) -> None:
    """An image that copies that folder alone installs it."""
    member = drifted({"leaf": "^1.0.0"}, {"leaf": held})
    if name == "yarn.lock":
        del member["package-lock.json"]
        member[name] = f'# yarn lockfile v1\n\n\nleaf@^1.0.0:\n  version "{held}"\n'
    packages = {
        "": {"name": "root", "workspaces": ["p/*"]},
        "node_modules/b": {"resolved": "p/b", "link": True},
        "p/b": json.loads(member["package.json"]),
        "node_modules/leaf": {"version": "1.2.0"},
    }
    root = json.dumps({"lockfileVersion": 3, "packages": packages})
    files = {
        "package.json": json.dumps(packages[""]),
        "package-lock.json": root,
        **{f"p/b/{path}": it for path, it in member.items()},
    }
    found = told(tmp_path, files)
    is_affected = held == "1.1.0"
    assert found.reason is (RefusalReason.UNKNOWN if is_affected else RefusalReason.NOT_AFFECTED)
    assert [it.path for it in found.unread] == [f"p/b/{name}"] * is_affected


def _notebook(source: str) -> str:
    """A notebook of one cell, which printed a command."""
    shown = {"output_type": "stream", "text": ["npm install leaf@1.1.0\n"]}
    cell = {"cell_type": "code", "source": source.splitlines(keepends=True), "outputs": [shown]}
    return json.dumps({"cells": [cell, {"cell_type": "markdown", "source": [source]}]})


@pytest.mark.parametrize(
    ("path", "text", "is_affected"),
    [
        ("Dockerfile", "FROM node\nRUN npm install -g \\\n  leaf@1.1.0\n", True),
        ("Dockerfile", "RUN npm install -g leaf@1.2.0 my-leaf@1.1.0 @s/leaf@1.1.0\n", False),
        (".github/workflows/ci.yml", "      - run: npx --yes leaf@~1.1.0 build\n", True),
        ("Makefile", "build:\n\tyarn global add leaf@^1.1.0\n", False),
        ("Makefile", "build:\n\tpnpm dlx 'leaf@1.1.0'\n", True),
        ("package.json", manifest(scripts={"build": "npx leaf@1.1.0"}), True),
        ("a.yaml", "- run: npm install leaf@1.1.0\n", True),
        ("bin/setup", "#!/bin/sh\nnpm install leaf@1.1.0\n", True),
        ("scripts/a.js", "execSync('npm install leaf@1.1.0', { stdio: 'inherit' })\n", True),
        ("scripts/a.js", "console.log('npm install leaf@1.1.0')\n", False),
        ("scripts/a.js", "throw new Error('run npm install leaf@1.1.0')\n", False),
        (".pre-commit-config.yaml", "  - additional_dependencies: [leaf@1.1.0]\n", True),
        (".pre-commit-config.yaml", "    additional_dependencies:\n    - 'leaf@1.2.0'\n", False),
        ("mise.toml", '[tools]\n"npm:leaf" = "1.1.0"\n', True),
        ("deno.json", '{"imports": {"leaf": "npm:leaf@^1.1.0", "b": "npm:b@1"}}\n', False),
        ("deno.json", '{"imports": {"leaf": "npm:leaf@1.1.0"}}\n', True),
        ("main.ts", "import x from 'npm:leaf@~1.1.0';\n", True),
        ("index.html", '<script src="https://cdn.test/npm/leaf@1.1.0/x.js"></script>\n', True),
        ("index.html", '<script src="//cdn.test/leaf/1.2.0/x.js"></script> leaf@1.1.0\n', False),
        ("index.html", '<script src="https://cdn.test/ajax/leaf/1.1.0/x.js"></script>\n', True),
        (
            "a.ts",
            "// as https://cdn.test/leaf@1.1.0/x.js\nx = 'https://x.test/leaf/1.1.0/help'\n",
            False,
        ),
        ("docs/index.html", '<script src="https://cdn.test/leaf@1.1.0"></script>\n', False),
        ("bower.json", '{"dependencies": {"leaf": "1.1.0", "b": "1"}}\n', True),
        ("web/package.json5", "{ dependencies: { leaf: '1.1.0' } }\n", True),
        ("web/package.yaml", "dependencies:\n  leaf: 1.1.0\n", True),
        ("web/package.yaml", "dependencies:\n- base\n- leaf == 1.1.0\n", False),
        ("scripts/update-lock.sh", "npm install leaf@1.1.0\n", True),
        (".github/workflows/npm-lock.yml", "    - run: npm install leaf@1.1.0\n", True),
        (".github/workflows/a.lock.yml", "    - run: npm install leaf@1.1.0\n", True),
        ("conda-lock.yml", "- url: https://cdn.test/leaf@1.1.0/x\n", False),
        ("env.lock.yaml", "- url: https://cdn.test/leaf@1.1.0/x\n", False),
        ("a.html", '<script src="https://c.test/libs/leaf.js/1.1.0/leaf.min.js"></script>\n', True),
        ("a.html", '<script src="//c.test/npm/leaf@1.1.0/leaf.js"></script>\n', True),
        ("a.html", "<script src=\n//c.test/npm/leaf@1.1.0/leaf.js></script>\n", True),
        ("a.html", '<script src="https://c.test/combine/npm/a@1,npm/leaf@1.1.0">\n', True),
        ("a.html", '<script src="https://c.test/x?deps=a@1,leaf@1.1.0"></script>\n', True),
        ("a.html", '<script src="https://code.test/leaf-1.1.0.min.js"></script>\n', True),
        ("a.html", '<script src="https://code.test/leaf-1.2.0.min.js"></script>\n', False),
        ("a.html", '<script src="https://code.test/my-leaf-1.1.0.min.js"></script>\n', False),
        ("a.ts", "// see //c.test/leaf@1.1.0/x.js\n//x = '//c.test/leaf@1.1.0/x.js'\n", False),
        ("a.html", '<script src="https://c.test/@s/leaf@1.1.0/leaf.js"></script>\n', False),
        ("a.html", '<script src="https://c.test/leaf-1.1.0/leaf.css"></script>\n', True),
        ("web.py", "JS = ['https://c.test/leaf@1.1.0/x.js']\n", True),
        ("Dockerfile", "RUN curl -O https://c.test/leaf@1.1.0/leaf.js && npm ci\n", True),
        ("Dockerfile", "RUN npm i -g https://c.test/leaf/-/leaf-1.1.0.tgz\n", True),
        ("Dockerfile", 'RUN ["npm", "install", "-g", "leaf@1.1.0"]\n', True),
        (".husky/pre-commit", "npx leaf@1.1.0\n", True),
        ("a.ipynb", _notebook("x = 1\n!npm install leaf@1.1.0\n"), True),
        ("a.ipynb", _notebook("%%bash\ncd x\nnpm install 'leaf@1.1.0'\n"), True),
        ("a.ipynb", _notebook("# !npm install leaf@1.1.0\nprint('npm i leaf@1.1.0')\n"), False),
        ("a.ipynb", "!npm install leaf@1.1.0\n", True),
        ("a.py", 'subprocess.run("npm install -g leaf@1.1.0", shell=True)\n', True),
        ("a.py", 'check_call(\n    ["npm", "install", "leaf@1.1.0"],\n)\n', True),
        ("a.py", '# os.system("npm i leaf@1.1.0")\nos.system("npm ci")\n', False),
        ("a.py", 'raise RuntimeError("npm install leaf@1.1.0 first")\n', False),
        ("a.js", "spawn('npm', // don't\n  ['install', 'leaf@1.1.0'])\n", True),
        ("a.js", "execSync(`cd ${d} && npm i leaf@1.1.0`)\n", True),
        ("a.js", 'execSync("(cd x); npm i leaf@1.1.0")\n', True),
        ("a.js", 'const cmd = "npm install leaf@1.1.0";\nexecSync(cmd);\n', True),
        ("a.js", 'const cmd = "npm install leaf@1.1.0";\nshow.it = cmd\n', False),
        ("Dockerfile", "RUN npm i -g \\\n  # the tool\n  # or so\n  leaf@1.1.0\n", True),
        ("Dockerfile", "RUN npm i -g \\\r\n  # the tool\r\n  leaf@1.1.0\r\n", True),
        ("Dockerfile", "# the tool \\\nRUN npm i -g leaf@1.1.0\n", True),
        (".pre-commit-config.yaml", "    # - leaf@1.1.0\n    - b@1.0.0\n", False),
        (".pre-commit-config.yaml", "  additional_dependencies: [\n    leaf@1.1.0,\n  ]\n", True),
        ("tests/fixtures/run.sh", "npm install leaf@1.1.0\n", False),
        ("README.md", "npm install leaf@1.1.0\n", False),
    ],
)
def test_what_a_command_installs_is_not_called_unaffected(
    tmp_path: Path, path: str, text: str, *, is_affected: bool
) -> None:
    found = told(tmp_path, {"package.json": manifest(), path: text})
    expected = RefusalReason.UNKNOWN if is_affected else RefusalReason.NOT_AFFECTED
    assert found.reason is expected
    assert [it.path for it in found.unread] == ([path] if is_affected else [])


_LONG = 200_000


@pytest.mark.parametrize(
    ("path", "start", "repeated"),
    [
        ("vercel.json", '"', '\\"'),
        ("a.sh", "a@$v\nv", " "),
        ("a.sh", "yarn", "://left"),
        ("a.sh", "", "://leaf/1/"),
        ("a.sh", "npm ", "yarn "),
        ("a.sh", "", "rm a;yarn\n"),
        ("a.js", "npm ", "sh"),
        ("a.js", "npm ", "$sh(`"),
        ("a.js", "npm sh(1)", "a =  "),
        ("a.yml", "", " "),
        ("a.yml", "", "${{"),
        ("Dockerfile", "", "--mount="),
        ("Dockerfile", "", "\\\n"),
        ("Dockerfile", "", "COPY a b\n"),
        (".pre-commit-config.yaml", "", "-"),
        ("b/.npmrc", "", "\n"),
    ],
)
def test_a_long_line_takes_linear_time(
    tmp_path: Path, path: str, start: str, repeated: str
) -> None:
    """More than linear time would be minutes."""
    text = start + repeated * (_LONG // len(repeated)) + " leaf"
    files = {"package.json": manifest(dependencies={"other": "1"}), _NAMES["yarn"]: _SAFE["yarn"]}
    files |= {"b/package.json": files["package.json"], f"b/{_NAMES['npm']}": _SAFE["npm"]}
    found = told(tmp_path, {**files, path: text})
    assert found.reason in {RefusalReason.NOT_AFFECTED, RefusalReason.UNKNOWN}


def test_many_variables_take_linear_time(tmp_path: Path) -> None:
    text = "".join(f"npm i a@$v{it}\n" for it in range(_LONG // 15))
    found = told(tmp_path, {"package.json": manifest(), "a.sh": text})
    assert found.reason is RefusalReason.NOT_AFFECTED


_NO_LOCK = [
    ("npm", ".npmrc", "package-lock = false\n"),
    ("npm", "Dockerfile", "FROM node\nRUN npm install --no-package-lock\n"),
    ("npm", "Dockerfile", "ENV NPM_CONFIG_PACKAGE_LOCK=false\nRUN npm install\n"),
    ("npm", "build.sh", "npm config set package-lock false\nnpm i\n"),
    ("yarn", "Makefile", "all:\n\tyarn install --no-lockfile\n"),
    ("yarn", ".yarnrc", "--install.no-lockfile true\n"),
    ("pnpm", ".npmrc", "lockfile=false\n"),
    ("pnpm", ".github/workflows/ci.yml", "    - run: pnpm i --no-lockfile\n"),
    ("npm", "Dockerfile", "FROM node\nCOPY package.json ./\nRUN npm install\nCOPY . .\n"),
    ("npm", "Dockerfile", "COPY . /app\nRUN rm -f package-lock.json && npm i\n"),
    ("npm", "Dockerfile", 'FROM node AS a\nADD ["package.json", "./"]\nFROM a\nRUN npm i\n'),
    ("yarn", "Containerfile", "COPY --chown=node package.json .npmrc ./\nRUN yarn\n"),
    ("pnpm", "x.dockerfile", "RUN --mount=type=bind,source=package.json pnpm install\n"),
    ("npm", "ci/run.sh", "rm -rf node_modules ./package-lock.json\nnpm install\n"),
    ("npm", "Makefile", "up:\n\tnpm update\n"),
    ("pnpm", "run.sh", "pnpm up --latest other\n"),
    ("yarn", ".github/workflows/up.yml", "  - run: yarn upgrade\n"),
]
_NAMES = {"npm": "package-lock.json", "yarn": "yarn.lock", "pnpm": "pnpm-lock.yaml"}
_SAFE = {
    "npm": lock({"dependencies": {"other": ">=1"}}, {"other": at("1.0.0")}),
    "yarn": '# yarn lockfile v1\n\n\n"other@>=1":\n  version "1.0.0"\n',
    "pnpm": (
        "lockfileVersion: '9.0'\n\nimporters:\n\n  .:\n    dependencies:\n      other:\n"
        "        specifier: '>=1'\n        version: 1.0.0\n\npackages:\n\n  other@1.0.0:\n"
        "    resolution: {integrity: sha512-AA==}\n\nsnapshots:\n\n  other@1.0.0: {}\n"
    ),
}


@pytest.mark.parametrize(("client", "path", "text"), _NO_LOCK)
def test_a_lock_that_an_install_command_ignores_does_not_decide_alone(
    tmp_path: Path, client: str, path: str, text: str
) -> None:
    """other 2.0.0, which the client installs then, requires an affected release."""
    files = {"package.json": manifest(dependencies={"other": ">=1"}), _NAMES[client]: _SAFE[client]}
    assert told(tmp_path / "a", files).reason is RefusalReason.NOT_AFFECTED
    found = told(tmp_path / "b", {**files, path: text})
    assert found.reason is RefusalReason.UNKNOWN
    assert [it.path for it in found.unread] == ["package.json"]


def test_an_image_that_leaves_the_lock_out_ignores_it(tmp_path: Path) -> None:
    files = {"package.json": manifest(dependencies={"other": ">=1"}), _NAMES["npm"]: _SAFE["npm"]}
    files["Dockerfile"] = "COPY . .\nRUN npm install\n"
    for number, (listed, reason) in enumerate(
        {
            "node_modules\n": RefusalReason.NOT_AFFECTED,
            "node_modules\n**/package-lock.json\n": RefusalReason.UNKNOWN,
            "*.json\n!package*.json\n": RefusalReason.NOT_AFFECTED,
            "# not package-lock.json\n\n*.log\n": RefusalReason.NOT_AFFECTED,
        }.items()
    ):
        found = told(tmp_path / str(number), {**files, ".dockerignore": listed})
        assert found.reason is reason, listed


_READS_LOCK = [
    (".npmrc", "package-lock=true\n"),
    (".npmrc", "# package-lock=false\n"),
    ("Dockerfile", "FROM node\nCOPY package*.json ./\nRUN npm install\n"),
    ("Dockerfile", "COPY package.json package-lock.json ./\nRUN npm i\n"),
    ("Dockerfile", "COPY package.json ./\nRUN npm i -g other@1.0.0\nCOPY . .\nRUN npm i\n"),
    ("Dockerfile", "COPY ./ .\nRUN npm install && rm package-lock.json\nRUN npm ci\n"),
    ("Dockerfile", "COPY package.json .\nCOPY --from=a /x/package-lock.json .\nRUN npm i\n"),
    ("web/Dockerfile", "COPY web/package.json .\nRUN npm install\n"),
    ("Dockerfile", "RUN git clone https://example.org/x && npm install\n"),
    ("run.sh", "rm -rf old/package-lock.json\nnpm install\nnpm update -g\n"),
]


@pytest.mark.parametrize(("path", "text"), _READS_LOCK)
def test_a_lock_that_its_client_reads_decides(tmp_path: Path, path: str, text: str) -> None:
    files = {"package.json": manifest(dependencies={"other": ">=1"})}
    files |= {_NAMES["npm"]: _SAFE["npm"], path: text}
    assert told(tmp_path, files).reason is RefusalReason.NOT_AFFECTED


def test_a_project_whose_lock_is_ignored_is_fixed_with_its_lock(tmp_path: Path) -> None:
    known = universe().npm("mid", "1.0.0").npm("mid", "1.1.0", {"leaf": "^1.0.0"})
    files = {"package.json": manifest(dependencies={"leaf": "1.1.0"})}
    with world(known, tmp_path) as here:
        result = here.fix(LEAF, {**here.locked(files), ".npmrc": "package-lock=false\n"})
        reported = here.written(result)
    assert reported.ok, reported.output
    assert {it.path for it in result.changes} == {"package.json", "package-lock.json"}
    assert versions(result) == {"leaf": "1.2.0"}


@pytest.mark.parametrize(
    ("path", "text", "is_affected"),
    [
        ("Dockerfile", "FROM node\nRUN npm i -g other@2\n", True),
        ("Dockerfile", 'RUN ["npm", "install", "--prefix", "x", "other"]\n', True),
        ("Dockerfile", "RUN npm i -g other@1.0.0\n", False),
        ("Makefile", "all:\n\tnpx --yes other@2 build\n", True),
        ("Makefile", "all:\n\tnpm exec --package=other@2 -- build other\n", True),
        ("Makefile", "all:\n\tnpm --package other@2 exec build\n", True),
        ("Makefile", "all:\n\tnpm -w test exec --package other@2 -- alone\n", True),
        ("Makefile", "all:\n\tnpm --loglevel test exec --package other@2 -c alone\n", True),
        ("Makefile", "all:\n\tnpx --node-arg --inspect -n x other@2 build\n", True),
        ("run.sh", "yarn dlx other@2 leaf\n", True),
        ("run.sh", "yarn global add other@2\n", True),
        ("run.sh", "pnpm --silent dlx -p other@2 x\n", True),
        ("run.sh", "cd x && pnpm add -g --dir y other && true\n", True),
        ("run.sh", "bunx other@2\n", True),
        ("run.sh", "npm i -g 'leaf@<1.2.0'\n", True),
        ("run.sh", "npm i -g leaf@'>=1.0.0 <1.2.0' > log\n", True),
        ("run.sh", "npm i -g leaf@${LEAF}\n", True),
        ("run.sh", "npm i -g other@${V}\n", True),
        ("Dockerfile", "ARG V=1.0.0\nRUN npm i -g other@${V}\n", False),
        ("Dockerfile", "ENV V 2.0.0\nRUN npm i -g other@$V\n", True),
        ("run.sh", "V=1\nnpm i -g alone@$X leaf@1.3.0\n", False),
        ("run.sh", "npm create other@latest my-app -- --yes\n", True),
        ("Makefile", "x:\n\tnpm init -y && npm init @s/other\n", True),
        ("run.sh", "pnpm create alone x\n", False),
        ("run.sh", "# npm i other@2\n", False),
        (".github/workflows/ci.yml", "  - name: npm install other\n    run: npm ci\n", False),
        ("package.json", manifest(scripts={"build": "tsc && npx other@2 x"}), True),
        ("scripts/a.mjs", "await $`npx --yes other@2 ${here}`\n", True),
        ("a.cjs", "spawn(\n  'npm',\n  ['install', '-g', 'other@2'],\n  { x: 1 })\n", True),
        ("a.ts", "run(`npm install ${name}`); log('npm install other@2')\n", False),
        (".devcontainer/devcontainer.json", '{"a": {"b": "npm i -g other@2"}, "c": "d"}\n', True),
        ("vercel.json", '{"installCommand":"npm i alone","buildCommand":"other"}\n', False),
        ("netlify.toml", '[build]\ncommand = "npx other@2"\n', True),
        (".pre-commit-config.yaml", "    additional_dependencies:\n    - other@2.0.0\n", True),
        ("Earthfile", "RUN npm i -g other@2\n", True),
        ("scripts/update-lock.sh", "npm i other@2\n", True),
        (".husky/pre-push", "npx other@2\n", True),
        ("a.ipynb", _notebook("!npm install other@2\n"), True),
        ("a.py", 'os.system("npm i other@2")\n', True),
        ("a.js", "exec(`cd ${d} && npm i other@2`)\n", True),
        ("a.js", "const cmd = `npm i ${flags} other@2`\nexec(cmd)\n", True),
        ("Dockerfile", "RUN npm i -g \\\n  # the tool\n  other@2\n", True),
        (".pre-commit-config.yaml", "    # - other@2.0.0\n    - alone@1.0.0\n", False),
        ("package.json", '{\n  "description": "Run `npm i leaf@1.0.0 other@2` first."\n}\n', False),
    ],
)
def test_what_a_commands_packages_require_is_resolved(
    tmp_path: Path, path: str, text: str, *, is_affected: bool
) -> None:
    with world(universe(), tmp_path) as here:
        repo = here.repo({"package.json": manifest(), path: text})
        found = here.plugin.select(LEAF, repo)
        if isinstance(found, Selected):
            with pytest.raises(RecipeError) as refused:
                here.plugin.apply(found, LEAF, repo)
            reason, unread = refused.value.reason, refused.value.unread
        else:
            reason, unread = found.reason, found.unread
    assert reason is (RefusalReason.UNKNOWN if is_affected else RefusalReason.NOT_AFFECTED)
    assert [it.path for it in unread] == ([path] if is_affected else [])


@pytest.mark.parametrize("text", ["RUN npm i -g nowhere@2\n", "RUN npm i -g $TOOL ./x\n"])
def test_a_command_that_no_registry_answers_is_a_note(tmp_path: Path, text: str) -> None:
    files = {**project({"leaf": "^1.0.0"}, {"leaf": at("1.0.0")}), "Dockerfile": text}
    with world(universe(), tmp_path) as here:
        result = here.fix(LEAF, files)
    assert any("npm i -g nowhere@2" in note for note in result.notes) is ("nowhere" in text)


def test_a_lock_that_only_a_command_reads_is_read(tmp_path: Path) -> None:
    """packageManager names pnpm, and the image installs with npm."""
    files = {
        **drifted({"leaf": "^1.0.0"}, {"leaf": "1.1.0"}),
        "package.json": manifest(dependencies={"leaf": "^1.0.0"}, packageManager="pnpm@9.15.9"),
        "pnpm-lock.yaml": (
            "lockfileVersion: '9.0'\n\nimporters:\n\n  .:\n    dependencies:\n      leaf:\n"
            "        specifier: ^1.0.0\n        version: 1.3.0\n\npackages:\n\n  leaf@1.3.0:\n"
            "    resolution: {integrity: sha512-AA==}\n\nsnapshots:\n\n  leaf@1.3.0: {}\n"
        ),
    }
    assert told(tmp_path / "a", files).reason is RefusalReason.NOT_AFFECTED
    repo = repository(tmp_path / "b", {**files, "Dockerfile": "RUN npm ci\n"})
    assert isinstance(build_ecosystem(FakeClients()).select(LEAF, repo), Selected)


@pytest.mark.parametrize("is_safe", [True, False])
def test_a_folder_without_a_lock_is_read_with_the_project(tmp_path: Path, *, is_safe: bool) -> None:
    own = {"name": "leaf", "version": "1.2.0" if is_safe else "1.1.0"}
    files = {
        "package.json": manifest(dependencies={"leaf": "file:vendor/leaf"}),
        "vendor/leaf/package.json": json.dumps(own),
    }
    with world(universe(), tmp_path) as here:
        repo = here.repo(files)
        try:
            found = here.plugin.select(LEAF, repo)
            if isinstance(found, Selected):
                here.plugin.apply(found, LEAF, repo)
            reason = getattr(found, "reason", None)
        except RecipeError as refused:
            reason = refused.reason
    assert reason is (RefusalReason.NOT_AFFECTED if is_safe else RefusalReason.RECIPE_UNSUPPORTED)


@pytest.mark.parametrize(
    ("asked", "after"),
    a_choice([("^1.1.0", "1.2.0"), ("~1.1.0", "1.2.0"), ("^1.3.0", "1.3.0")], step=2),
)
def test_an_affected_copy_is_fixed_and_the_lock_answers_again(
    tmp_path: Path, asked: str, after: str
) -> None:
    files = drifted({"leaf": asked, "other": "^1.0.0"}, {"leaf": "1.0.0"})
    with world(universe(), tmp_path) as here:
        result = here.fix(LEAF, files)
        reported = here.written(result)
    assert reported.ok, reported.output
    assert versions(result) == {"leaf": after, "other": "1.0.0"}
    assert any("is out of step with package.json" in note for note in result.notes)


def test_what_the_client_adds_to_a_lock_anyway_stops_no_fix(tmp_path: Path) -> None:
    """The lock lacks ``new``: each installation adds its pre-release, and another affected package."""
    found = universe().npm("pre", "1.0.0").npm("pre", "2.0.0-rc.1").npm("worn", "1.0.0")
    found.npm("new", "1.0.0", {"pre": "2.0.0-rc.1", "worn": "1.0.0"})
    asked = {"leaf": "^1.0.0", "pre": "^1.0.0"}
    files = drifted({**asked, "new": "1.0.0"}, {"leaf": "1.0.0", "pre": "1.0.0"})
    worn = bad("worn", ("0", None)).model_copy(update={"id": "OSV-TEST-2"})
    for record in (LEAF, bundle([LEAF, worn])):
        with world(found, tmp_path / record.id) as here:
            result = here.fix(record, files)
            reported = here.written(result)
        assert reported.ok, reported.output
        assert [(move.package, move.before) for move in result.moves] == [("leaf", ("1.0.0",))]
        assert [item.package for item in result.left] == ([] if record is LEAF else ["worn"])
        assert versions(result)["pre"] == "1.0.0"


def test_what_the_client_adds_may_not_be_too_new(tmp_path: Path) -> None:
    """Without the rule npm would add dep 1.1.0; the fix is held to it."""
    found = universe().npm("dep", "1.0.0").npm("dep", "1.1.0", published="1 day ago")
    found.npm("new", "1.0.0", {"dep": "^1.0.0"})
    files = drifted({"leaf": "^1.0.0", "new": "1.0.0"}, {"leaf": "1.0.0"})
    with world(found, tmp_path) as here:
        here.settings = Settings(release_age_days=7)
        result = here.fix(LEAF, files)
    assert versions(result)["dep"] == "1.0.0"


def test_a_raised_declaration_is_written_beside_what_is_left(tmp_path: Path) -> None:
    """No lock: leaf is raised in package.json, and what mid brings in has no fix."""
    found = universe().npm("stuck", "1.0.0").npm("mid", "1.0.0", {"stuck": "1.0.0"})
    stuck = bad("stuck", ("0", None)).model_copy(update={"id": "OSV-TEST-2"})
    files = {"package.json": manifest(dependencies={"leaf": "1.0.0", "mid": "^1.0.0"})}
    with world(found, tmp_path) as here:
        result = here.fix(bundle([LEAF, stuck]), files)
    assert [(move.package, move.before) for move in result.moves] == [("leaf", ("1.0.0",))]
    assert [change.path for change in result.changes] == ["package.json"]
    assert [item.package for item in result.left] == ["stuck"]


def test_nothing_is_written_where_nothing_is_fixed(tmp_path: Path) -> None:
    """The lock is brought up with a fix; by itself, that is none."""
    found = universe().npm("worn", "1.0.0").npm("new", "1.0.0")
    worn = bad("worn", ("0", None)).model_copy(update={"id": "OSV-TEST-2"})
    files = drifted({"worn": "1.0.0", "new": "1.0.0"}, {"worn": "1.0.0"})
    files |= {
        f"app/{path}": text
        for path, text in project({"leaf": "^1.0.0"}, {"leaf": at("1.0.0")}).items()
    }
    with world(found, tmp_path) as here:
        result = here.fix(bundle([LEAF, worn]), files)
    assert [change.path for change in result.changes] == ["app/package-lock.json"]
    assert [item.package for item in result.left] == ["worn"]


def test_a_plan_and_its_json_name_the_file_and_the_command(tmp_path: Path) -> None:
    """The other advisory of the two is planned; what can't be told of this one is left, by its own name."""
    files = {
        **drifted({"leaf": "^1.1.0"}, {}),
        **{
            f"app/{path}": text
            for path, text in project({"other": "1.0.0"}, {"other": at("1.0.0")}).items()
        },
    }
    records = (LEAF, bad("other", ("0", "1.1.0")).model_copy(update={"id": "OSV-TEST-2"}))
    for resolve in (False, True):
        found = universe().npm("other", "1.1.0")
        with world(found, tmp_path / str(resolve)) as here:
            here.settings = Settings(offline=True)
            repo = here.repo(files).model_copy(update={"manifests": tuple(files)})
            given = AdvisorySet(advisories=records)
            made = divisible_plan(given, repo, {"npm": here.plugin}, resolve=resolve).plan
        document = json.loads(made.model_dump_json())
        left = {tuple(item["advisory_ids"]): item for item in document["left"]}
        assert ("OSV-TEST-1",) in left, document
        item = left["OSV-TEST-1",]
        assert item["reason"] == "unknown"
        assert "package-lock.json is out of step with package.json" in item["sentence"]
        assert REPAIR in f"{item['sentence']} {item['next_step']}"
        assert [fix.advisory_ids for fix in made.fixes] == [("OSV-TEST-2",)]


def nested(folder: str, files: Mapping[str, str]) -> dict[str, str]:
    return {f"{folder}/{path}": text for path, text in files.items()}


def test_the_client_resolves_it_once_and_that_decides(tmp_path: Path) -> None:
    """2.0.0 of ``other`` brings an affected leaf that no file names; the lock answers it then."""
    with world(universe().npm("other", "2.0.1", {"leaf": "1.2.0"}), tmp_path) as here:
        result = here.fix(LEAF, drifted({"other": "2.0.0"}, {"other": "1.0.0"}))
    assert not result.left
    assert versions(result) == {"leaf": "1.2.0", "other": "2.0.1"}


def test_what_it_resolves_to_can_be_safe(tmp_path: Path) -> None:
    with world(universe(), tmp_path) as here:
        with pytest.raises(RecipeError) as caught:
            here.fix(LEAF, drifted({"leaf": "^1.1.0"}, {}))
        assert caught.value.reason is RefusalReason.NOT_AFFECTED
        assert here.verbs() == ["install"]


def test_empty_locks_among_tests_refuse_nothing(tmp_path: Path) -> None:
    """A client's test data, in a folder without a manifest: two locks, each judged by itself."""
    files = drifted({"leaf": "^1.1.0"}, {})
    files |= {"test/locks/package-lock.json": "", "test/locks/yarn.lock": ""}
    with world(universe(), tmp_path) as here, pytest.raises(RecipeError) as caught:
        here.fix(LEAF, files)
    assert caught.value.reason is RefusalReason.NOT_AFFECTED


def test_one_plan_resolves_a_project_once(tmp_path: Path) -> None:
    """Neither another look of the same run, nor a second advisory, resolves the base commit again."""
    records = (LEAF, bad("other", ("0", "1.0.0")).model_copy(update={"id": "OSV-TEST-2"}))
    with world(universe(), tmp_path) as here:
        repo = here.repo({"package.json": manifest(dependencies={"leaf": "^1.1.0"})})
        repo = repo.model_copy(update={"manifests": ("package.json",)})
        given = AdvisorySet(advisories=records)
        plugin = here.plugin
        for _ in range(2):
            divisible_plan(given, repo, {"npm": plugin}, resolve=True)
        assert here.verbs().count("install") <= 2  # the base commit, and the raised declaration


def test_offline_a_kept_resolution_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made by a run with a registry, for exactly these inputs; others stay unknown."""
    files = drifted({"other": "^1.0.0"}, {})
    resolved = datetime.now(UTC)
    with world(universe(), tmp_path) as here:
        with pytest.raises(RecipeError) as caught:
            here.fix(LEAF, files)
        assert caught.value.reason is RefusalReason.NOT_AFFECTED
        here.settings = Settings(offline=True)
        here.clients.calls.clear()
        selection = here.select(LEAF, files)
        assert isinstance(selection, NotApplicable)
        assert selection.reason is RefusalReason.NOT_AFFECTED
        days = {resolved.date(), datetime.now(UTC).date()}  # two at midnight
        assert any(f"npm resolved it on {day}" in selection.sentence for day in days)
        assert here.verbs() == []
        held, ours = resolutions._versions()
        for npm, reason in {
            held: RefusalReason.NOT_AFFECTED,
            "another": RefusalReason.UNKNOWN,
        }.items():
            monkeypatch.setattr(resolutions, "_versions", lambda npm=npm: (npm, ours))
            selection = here.select(LEAF, files)
            assert isinstance(selection, NotApplicable)
            assert selection.reason is reason
    assert told(tmp_path / "b", drifted({"other": "*"}, {})).reason is RefusalReason.UNKNOWN


def test_what_no_registry_answers_is_unknown(tmp_path: Path) -> None:
    with world(universe(), tmp_path) as here, pytest.raises(RecipeError) as caught:
        here.fix(LEAF, drifted({"gone": "1.0.0", "leaf": "^1.2.0"}, {"leaf": "1.2.0"}))
    assert caught.value.reason is RefusalReason.UNKNOWN
    assert "gone" in caught.value.problem
    assert [item.path for item in caught.value.unread] == ["package-lock.json"]


@pytest.mark.parametrize(
    ("section", "spec", "reason"),
    [
        ("optionalDependencies", "1.1.0", None),
        ("optionalDependencies", "~1.1.0", None),
        ("optionalDependencies", "^1.1.0", RefusalReason.NOT_AFFECTED),
        ("peerDependencies", "1.1.0", RefusalReason.RECIPE_UNSUPPORTED),
        ("peerDependencies", ">=1.1.0", RefusalReason.NOT_AFFECTED),
    ],
)
def test_a_declaration_of_affected_releases_alone_is_affected(
    tmp_path: Path, section: str, spec: str, reason: RefusalReason | None
) -> None:
    """Though the lock, which need not have it, has none of it."""
    with world(universe(), tmp_path) as here:
        files = drifted({}, {}, **{section: {"leaf": spec}})
        selection = here.select(LEAF, files)
        if reason is RefusalReason.NOT_AFFECTED:
            assert isinstance(selection, NotApplicable)
            assert selection.reason is reason
            return
        if reason is not None:
            with pytest.raises(RecipeError) as caught:
                here.fix(LEAF, files)
            assert caught.value.reason is reason
            return
        result = here.fix(LEAF, files)
        assert here.written(result).ok
    assert versions(result) == {"leaf": "1.2.0"}
    assert [move.range_admits for move in result.moves] == [False]


@pytest.mark.parametrize(("spec", "both"), [("^1.1.0", True), ("1.1.0", False), ("~1.1.0", False)])
def test_an_unlocked_range_that_admits_both_is_labelled(
    tmp_path: Path, spec: str, both: bool
) -> None:
    with world(universe(), tmp_path) as here:
        result = here.fix(LEAF, {"package.json": manifest(dependencies={"leaf": spec})})
    assert [move.range_admits for move in result.moves] == [both]
    assert ("range_admits" in result.moves[0].model_dump()) is both


def test_without_a_lock_a_copy_that_another_package_requires_counts(tmp_path: Path) -> None:
    """Raising the project's own declaration is half of a fix."""
    found = universe().npm("mid", "1.0.0", {"leaf": "1.1.0"}).npm("mid", "1.0.1", {"leaf": "1.2.0"})
    files = {"package.json": manifest(dependencies={"leaf": "1.0.0", "mid": "1.0.0"})}
    with world(found, tmp_path) as here:
        result = here.fix(LEAF, files)
    after = json.loads(result.changes[0].after or "")["dependencies"]
    assert after == {"leaf": "1.2.0", "mid": "1.0.1"}


@pytest.mark.parametrize("section", ["optionalDependencies", "peerDependencies"])
def test_without_a_lock_every_section_is_installed(tmp_path: Path, section: str) -> None:
    files = {"package.json": manifest(**{section: {"other": "2.0.0"}})}
    assert told(tmp_path / "offline", files).reason is RefusalReason.UNKNOWN
    with world(universe(), tmp_path) as here:
        result = here.fix(LEAF, files)
    assert [(move.package, move.before) for move in result.moves] == [("leaf", ("1.0.0",))]


@pytest.mark.parametrize("client", ["yarn", "pnpm"])
def test_locks_of_other_clients_state_origin_and_digest(tmp_path: Path, client: str) -> None:
    files = {"package.json": manifest(dependencies={"other": ">=1"}), _NAMES[client]: _SAFE[client]}
    files["yarn.lock"] = (
        '# yarn lockfile v1\n\n\n"other@>=1":\n  version "1.0.0"\n'
        '  resolved "https://r.example/other-1.0.0.tgz#00"\n  integrity sha512-AA==\n'
    )
    if client == "pnpm":
        del files["yarn.lock"]
        files["pnpm-lock.yaml"] = files["pnpm-lock.yaml"].replace(
            "AA==}", "AA==, tarball: https://r.example/other-1.0.0.tgz}"
        )
    repo = repository(tmp_path, files)
    (site,) = discover(repo)
    (other,) = NpmProject(site, repo, FakeClients()).command.resolution.packages
    assert other.origin.startswith("https://r.example/other-1.0.0.tgz")
    assert other.digest == "sha512-AA=="


def test_the_value_says_where_it_comes_from(tmp_path: Path) -> None:
    with world(universe(), tmp_path) as here:
        dependencies = {"l": "npm:leaf@^1.1.0", "other": "2.0.0"}
        plain = {"package.json": manifest(dependencies=dependencies)}
        made = {}
        for name, files in (("client", plain), ("lock", here.locked(plain))):
            repo = repository(tmp_path / name, files)
            (site,) = discover(repo)
            made[name] = NpmProject(site, repo, here.clients).command.resolution
    for name, found in made.items():
        assert found.by.value == name
        assert (found.made_on is None) is (name == "lock")
        assert {(it.name, it.version) for it in found.packages} == {
            ("leaf", "1.4.0"),
            ("leaf", "1.0.0"),
            ("other", "2.0.0"),
        }
        assert all(it.origin.endswith(".tgz") and it.digest for it in found.packages)
        assert [(it.name, it.text, it.file, it.line) for it in found.declarations] == [
            ("leaf", "l npm:leaf@^1.1.0", "package.json", 5),
            ("other", "other 2.0.0", "package.json", 6),
        ]
        assert [it.version for it in found.affected(LEAF)] == ["1.0.0"]


@pytest.mark.parametrize(
    ("folder", "asked"), [("test/fixtures/old", {"gone": "^1.1.0"}), ("other", {"gone": "^1.0.0"})]
)
def test_a_fixture_and_what_concerns_another_package_are_noted(
    tmp_path: Path, folder: str, asked: dict[str, str]
) -> None:
    """If no registry has it."""
    files = {
        **project({"leaf": "^1.0.0"}, {"leaf": at("1.0.0")}),
        **{f"{folder}/{path}": text for path, text in drifted(asked, {}).items()},
    }
    with world(universe(), tmp_path) as here:
        result = here.fix(LEAF, files)
    assert versions(result)["leaf"] == "1.2.0"
    assert any(f"{folder}/package-lock.json is out of step" in note for note in result.notes)


def test_a_member_that_the_lock_does_not_know_yet(tmp_path: Path) -> None:
    files = {
        "package.json": manifest(workspaces=["packages/*"]),
        "packages/new/package.json": json.dumps(
            {"name": "new", "dependencies": {"leaf": "^1.1.0"}}
        ),
        "package-lock.json": lock({"workspaces": ["packages/*"]}, {}),
    }
    sentence = told(tmp_path, files).sentence
    assert "package-lock.json is out of step with packages/new/package.json" in sentence


@pytest.mark.parametrize(
    ("name", "text", "command"),
    [
        ("yarn.lock", '# yarn lockfile v1\n\n\nleaf@^1.3.0:\n  version "1.3.0"\n', "yarn install"),
        (
            "pnpm-lock.yaml",
            "lockfileVersion: '9.0'\nimporters:\n  .: {}\n",
            "pnpm install --lockfile-only",
        ),
    ],
)
def test_other_clients_locks(tmp_path: Path, name: str, text: str, command: str) -> None:
    files = {"sub/package.json": manifest(dependencies={"leaf": "^1.1.0"}), f"sub/{name}": text}
    sentence = told(tmp_path, files).sentence
    assert f"sub/{name} is out of step with sub/package.json" in sentence
    assert f"`{command}` in sub" in sentence


@pytest.mark.parametrize("name", ["yarn.lock", "pnpm-lock.yaml"])
def test_of_a_broken_lock_and_a_broken_manifest_the_lock_is_named(name: str) -> None:
    files = Files(".", {"package.json": "{"}, name, "{: [")
    with pytest.raises(RecipeError, match=name):
        client_for(name, FakeClients()).tree(files)


def test_a_gate_does_not_call_it_gone(tmp_path: Path) -> None:
    """Asked for and not locked: whoever installs it gets some version of it."""
    repo = repository(tmp_path, drifted({"leaf": "^1.1.0"}, {}))
    (found,) = survey(repo, "leaf")
    assert (found.lock, found.installed) == (None, {})
    assert found.unread == "package-lock.json holds none of leaf, which package.json requires"


@pytest.mark.parametrize("version", ["4", '"3"', "null"])
def test_a_lock_of_an_unknown_version_is_named(tmp_path: Path, version: str) -> None:
    """And npm does what the next step says."""
    files = {f"app/{p}": text for p, text in drifted({"leaf": "^1.0.0"}, {"leaf": "1.0.0"}).items()}
    path = "app/package-lock.json"
    files[path] = files[path].replace('"lockfileVersion": 3', f'"lockfileVersion": {version}')
    with world(universe(), tmp_path) as here:
        refused = here.select(LEAF, files)
        assert isinstance(refused, NotApplicable)
        assert f"{path} has lockfileVersion " in refused.sentence
        command = f"{REPAIR} --lockfile-version=3"
        assert f"`{command}`" in refused.sentence
        words = command.split()[1:]
        ran = here.clients.inner.run("npm", words, cwd=here.root / "app", timeout_s=60)
        assert ran.ok, ran.output
        repaired = {
            path: (here.root / path).read_text(),
            "app/package.json": files["app/package.json"],
        }
        assert versions(here.fix(LEAF, repaired), path)["leaf"] == "1.2.0"


def test_a_lock_that_answers_lets_a_fix_be_selected(tmp_path: Path) -> None:
    files = drifted({"leaf": "^1.0.0"}, {"leaf": "1.0.0"})
    found = build_ecosystem(FakeClients()).select(LEAF, repository(tmp_path, files))
    assert isinstance(found, Selected)


REGISTRY = "https://registry.example/leaf/-/leaf"


@pytest.mark.parametrize(
    ("name", "spec", "affected"),
    [
        ("leaf", f"{REGISTRY}-1.1.0.tgz", True),
        ("x", f"{REGISTRY}-1.1.0.tgz", True),
        ("x", f"{REGISTRY}-1.2.0.tgz", False),
        ("leaf", f"{REGISTRY}-1.2.0.tgz", False),
        ("leaf", "https://host/any.tgz", True),
        ("x", "https://registry.example/leafy/-/leafy-1.1.0.tgz", False),
    ],
)
def test_an_address_without_a_lock_is_judged_by_its_version(
    tmp_path: Path, name: str, spec: str, affected: bool
) -> None:
    """What it requires itself is unknown: nothing is fetched from an address."""
    refused = told(tmp_path, {"package.json": manifest(dependencies={name: spec})})
    assert (refused.reason is RefusalReason.RECIPE_UNSUPPORTED) is affected
    assert affected or refused.reason is RefusalReason.UNKNOWN


def test_peers_that_conflict_are_set_aside_as_people_do(tmp_path: Path) -> None:
    """npm installs such a project with --legacy-peer-deps alone."""
    found = universe().npm("leaf", "2.0.0").npm("mid", "1.0.0", {"leaf": "1.1.0"})
    found.npm("plugin", "1.0.0", peerDependencies={"leaf": "^2.0.0"})
    found.npm("mid", "1.0.1", {"leaf": "1.2.0"})
    asked = {"leaf": "1.2.0", "plugin": "1.0.0"}
    with world(found, tmp_path) as here:
        with pytest.raises(RecipeError) as caught:
            here.fix(LEAF, {"package.json": manifest(dependencies=asked)})
        assert caught.value.reason is RefusalReason.NOT_AFFECTED
        result = here.fix(LEAF, {"package.json": manifest(dependencies={**asked, "mid": "1.0.0"})})
    assert [move.raised for move in result.moves] == [("mid 1.0.1",)]


def test_a_scope_of_another_registry_is_unknown_and_asked_nowhere(tmp_path: Path) -> None:
    files = {
        "package.json": manifest(dependencies={"@corp/x": "1.0.0"}),
        ".npmrc": "@corp:registry=https://npm.corp.example/\n",
    }
    with world(universe().npm("@corp/x", "1.0.0"), tmp_path) as here:
        with pytest.raises(RecipeError) as caught:
            here.fix(LEAF, files)
        assert "install" not in here.verbs()
    assert caught.value.reason is RefusalReason.UNKNOWN
    assert "npm.corp.example" in caught.value.problem


_REFUSED = [
    ({"other": "^latest"}, {}),
    ({"other": ">=9"}, {}),
    ({"nowhere": "1.0.0"}, {}),
    *(
        pytest.param({"other": spec}, {"packageManager": client}, marks=pytest.mark.registry("npm"))
        for spec in ("^latest", "^9.0.0")
        for client in ("yarn@1.22.22", "pnpm@9.15.9")
    ),
]


@pytest.mark.parametrize(("asked", "more"), _REFUSED)
def test_an_example_that_its_client_refuses_concerns_what_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: dict[str, str], more: dict[str, str]
) -> None:
    example, cache = "examples/a/package.json", tmp_path / "cache"
    if more:
        provisioned(cache / "fallback-tier" / "clients", YARN, PNPM["9"])
        monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    with world(universe(), tmp_path) as here:

        def end(files: Mapping[str, str]) -> RefusalReason:
            repo = here.repo(files)
            found = here.plugin.select(LEAF, repo)
            if isinstance(found, NotApplicable):
                return found.reason
            with pytest.raises(RecipeError) as refused:
                here.plugin.apply(found, LEAF, repo)
            return refused.value.reason

        files = {**project({"other": "1.0.0"}, {"other": at("1.0.0")})}
        refused = manifest(dependencies=asked, **more)
        assert end({**files, example: refused}) is RefusalReason.NOT_AFFECTED
        # In the project itself, or if it names the package, it is a doubt.
        assert end({**files, "a/package.json": refused}) is RefusalReason.UNKNOWN
        named = manifest(dependencies=asked, devDependencies={"leaf": ">=1"}, **more)
        assert end({**files, example: named}) is RefusalReason.UNKNOWN


def test_projects_of_a_repository_share_what_a_registry_said(tmp_path: Path) -> None:
    """One question about the package, and per project one resolution of the fix."""
    for number in (1, 5):
        with world(universe(), tmp_path / str(number)) as here:
            text = manifest(dependencies={"leaf": "1.1.0"})
            here.fix(LEAF, {f"p{it}/package.json": text for it in range(number)})
            verbs = [call[1] for call in here.clients.calls]
        assert {it: verbs.count(it) for it in verbs} == {"view": 1, "install": number}
