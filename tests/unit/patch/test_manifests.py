"""What a manifest or a lock file may say after a fix, in every format that clients read."""

import json

import pytest

from fallback_plugins.npm.plugin import NpmEcosystem
from fallback_plugins.pypi.plugin import PyPIEcosystem
from fallback_tier.patch.manifests import lies_in, manifest_problems
from fallback_tier.patch.policy import recipe_only_reason
from fallback_tier.sandbox.clients import SubprocessClients

ECOSYSTEMS = (NpmEcosystem(SubprocessClients()), PyPIEcosystem(SubprocessClients()))

SHA = "0123456789abcdef" * 4
HOST = "https://registry.test"

PACKAGE = """{
  "dependencies": {"left": "1.0.0", "url": "0.11.0", "alias": "npm:@scope/left@1.0.0"},
  "overrides": {"parent": {"left": "1.0.0"}},
  "scripts": {"test": "node --test"}
}
"""
NPM_LOCK = json.dumps(
    {
        "lockfileVersion": 3,
        "packages": {
            "": {"dependencies": {"left": "1.0.0"}},
            "node_modules/left": {
                "version": "1.0.0",
                "resolved": f"{HOST}/left/-/left-1.0.0.tgz",
                "integrity": f"sha512-{SHA}",
                "funding": {"url": "https://give.test/old"},
                "dependencies": {"url": "^0.11.0"},
            },
            "node_modules/@scope/left": {
                "version": "1.0.0",
                "resolved": f"{HOST}/@scope/left/-/left-1.0.0.tgz",
                "integrity": f"sha512-{SHA}",
            },
        },
    },
    indent=2,
)
YARN = f"""# yarn lockfile v1


left@^1.0.0, "left@>=1 <2":
  version "1.0.0"
  resolved "{HOST}/left/-/left-1.0.0.tgz#{SHA[:40]}"
  integrity sha512-{SHA}
  dependencies:
    url "^0.11.0"

"@scope/left@^1.0.0":
  version "1.0.0"
  resolved "{HOST}/@scope/left/-/left-1.0.0.tgz#{SHA[:40]}"
  integrity sha512-{SHA}
"""
BERRY = f"""__metadata:
  version: 8

"left@npm:^1.0.0":
  version: 1.0.0
  resolution: "left@npm:1.0.0"
  dependencies:
    url: "npm:^0.11.0"
  checksum: 10c0/{SHA}
  languageName: node
  linkType: hard
"""
PNPM = f"""lockfileVersion: '9.0'

importers:
  .:
    dependencies:
      left:
        specifier: ^1.0.0
        version: 1.0.0

packages:
  left@1.0.0:
    resolution: {{integrity: sha512-{SHA}}}

snapshots:
  left@1.0.0:
    dependencies:
      url: 0.11.0
"""
UV = f"""version = 1

[[package]]
name = "left"
version = "1.0.0"
source = {{ registry = "{HOST}/simple" }}
sdist = {{ url = "{HOST}/files/left-1.0.0.tar.gz", hash = "sha256:{SHA}", size = 1 }}
wheels = [
    {{ url = "{HOST}/files/left-1.0.0.whl", hash = "sha256:{SHA}" }},
]
"""
POETRY = f"""[[package]]
name = "left"
version = "1.0.0"
description = "See https://words.test/1.0.0"
files = [
    {{file = "left-1.0.0.whl", hash = "sha256:{SHA}"}},
]

[package.dependencies]
url = ">=0.11.0"

[package.source]
type = "legacy"
url = "{HOST}/simple"
reference = "private"

[metadata]
content-hash = "x"
"""
PIPENV = json.dumps(
    {
        "_meta": {"sources": [{"name": "pypi", "url": f"{HOST}/simple", "verify_ssl": True}]},
        "default": {"left": {"hashes": [f"sha256:{SHA}"], "index": "pypi", "version": "==1.0.0"}},
    }
)
PYLOCK = f"""lock-version = "1.0"

[[packages]]
name = "left"
version = "1.0.0"
index = "{HOST}/simple"
wheels = [
    {{ url = "{HOST}/files/left-1.0.0.whl", hashes = {{ sha256 = "{SHA}" }} }},
]
"""
PYPROJECT = """[project]
name = "app"
dependencies = ["left==1.0.0 ; python_version >= '3.9'"]

[tool.poetry.dependencies]
left = {version = "1.0.0", extras = ["x"], source = "private"}
url = "1.0.0"

[tool.poetry.group.dev]
optional = true

[tool.poetry.group.dev.dependencies]
right = "1.0.0"

[tool.pytest.ini_options]
addopts = "-q"
"""
PIPFILE = f"""[[source]]
name = "pypi"
url = "{HOST}/simple"

[packages]
left = "==1.0.0"
right = {{version = "==1.0.0", markers = "os_name == 'x'"}}

[scripts]
test = "pytest"
"""
SETUP = """[metadata]
name = app

[options]
install_requires =
    left==1.0.0

[options.extras_require]
dev =
    right==1.0.0

[tool:pytest]
addopts = -q
"""
REQUIREMENTS = f"""--index-url {HOST}/simple
left[extra]==1.0.0 ; python_version >= '3.9' \\
    --hash=sha256:{SHA}
    # via https://words.test/1.0.0
"""

WORKSPACE = """packages:
  - packages/*
catalog:
  left: 1.0.0  # url
  url: ^0.11.0
catalogs:
  url:
    left: npm:@scope/left@1.0.0
overrides:
  parent>left: 1.0.0
nodeOptions: --no-warnings
"""

BEFORE = {
    "package.json": PACKAGE,
    "package-lock.json": NPM_LOCK,
    "npm-shrinkwrap.json": NPM_LOCK,
    "yarn.lock": YARN,
    "berry/yarn.lock": BERRY,
    "pnpm-lock.yaml": PNPM,
    "pnpm-workspace.yaml": WORKSPACE,
    "uv.lock": UV,
    "poetry.lock": POETRY,
    "Pipfile.lock": PIPENV,
    "pylock.toml": PYLOCK,
    "pyproject.toml": PYPROJECT,
    "Pipfile": PIPFILE,
    "setup.cfg": SETUP,
    "requirements.txt": REQUIREMENTS,
}


def problems(path: str, *changes: tuple[str, str]) -> list[str]:
    after = BEFORE[path]
    for old, new in changes:
        assert old in after
        after = after.replace(old, new)
    keys = next(k for one in ECOSYSTEMS if (k := one.editable_keys(path)) is not None)
    return list(manifest_problems(path, keys, BEFORE[path], after))


def test_an_exception_from_a_rule_on_ages_is_for_its_package_alone() -> None:
    """The keys of a person's exceptions may change, and name no source."""
    before = '[tool.uv]\nexclude-newer = "7 days"\n'
    entry = 'exclude-newer-package = { left = "2026-01-31T00:00:00Z" }\n'

    def found(after: str, *dates: str) -> list[str]:
        keys = ("project.dependencies",)
        return list(manifest_problems("pyproject.toml", keys, before, after, None, dates))

    left = "tool.uv.exclude-newer-package.left"
    assert found(before + entry, left) == []
    assert found(before + entry) == [
        "'pyproject.toml': tool.uv.exclude-newer-package may not be changed."
    ]
    others = entry.replace("}", ', right = "2026-01-31" }')
    assert found(before + others, left) == [
        "'pyproject.toml': tool.uv.exclude-newer-package.right may not be changed."
    ]
    assert found(before.replace("7 days", "1 day") + entry, left) == [
        "'pyproject.toml': tool.uv.exclude-newer may not be changed."
    ]


@pytest.mark.parametrize("path", BEFORE)
def test_another_release_is_no_other_source(path: str) -> None:
    """Every version in the file is another one, that of a package called ``url`` among them."""
    releases = [("1.0.0", "1.0.1")]
    if "0.11.0" in BEFORE[path]:
        releases.append(("0.11.0", "0.11.3"))
    assert problems(path, *releases) == []


@pytest.mark.parametrize(
    ("place", "prefix", "inside"),
    [
        (
            ("tool", "hatch", "envs", "x", "dependencies"),
            ("tool", "hatch", "envs", "*", "dependencies"),
            True,
        ),
        (
            ("tool", "hatch", "envs", "x", "scripts"),
            ("tool", "hatch", "envs", "*", "dependencies"),
            False,
        ),
        (("tool", "hatch", "envs"), ("tool", "hatch", "envs", "*", "dependencies"), False),
        (("docs", "left"), ("!source!scripts",), True),
        (("source",), ("!source!scripts",), False),
        (("scripts", "x"), ("!source!scripts",), False),
    ],
)
def test_places_of_prefixes(place: tuple[str, ...], prefix: tuple[str, ...], inside: bool) -> None:
    assert lies_in(place, prefix) is inside


@pytest.mark.parametrize("path", BEFORE)
def test_nothing_is_against_what_did_not_change(path: str) -> None:
    assert problems(path) == []


CHANGED = {
    "setup.cfg's options of pytest": ("setup.cfg", ("addopts = -q", "addopts = -q -p evil")),
    "a new section of setup.cfg": ("setup.cfg", ("[metadata]", "[aliases]\ntest = x\n[metadata]")),
    "an address in setup.cfg": ("setup.cfg", ("left==1.0.0", "left @ https://e.test/l.whl")),
    "a key of setup.cfg twice": ("setup.cfg", ("[metadata]", "[metadata]\nname = x")),
    "Pipfile's sources": ("Pipfile", (HOST, "https://evil.test")),
    "Pipfile's scripts": ("Pipfile", ('"pytest"', '"true"')),
    "Pipfile's settings": (
        "Pipfile",
        ("[scripts]", "[pipenv]\nallow_prereleases = true\n[scripts]"),
    ),
    "an entry of Pipfile from git": (
        "Pipfile",
        ('"==1.0.0"\nright', '{git = "https://e.test/left", ref = "x"}\nright'),
    ),
    "an entry of Pipfile from a file": ("Pipfile", ('"==1.0.0"\nright', '{file = "l.whl"}\nright')),
    "an entry's index": ("Pipfile", ("{version", '{index = "other", version')),
    "pytest's options in pyproject": ("pyproject.toml", ('"-q"', '"-q -x"')),
    "an entry of Poetry's from git": (
        "pyproject.toml",
        ('right = "1.0.0"', 'right = {git = "https://e.test/r"}'),
    ),
    "another source of Poetry's": ("pyproject.toml", ('source = "private"', 'source = "other"')),
    "a direct reference": ("pyproject.toml", ("left==1.0.0 ", "left@https://e.test/l.whl ")),
    "a path as dependency": ("pyproject.toml", ('url = "1.0.0"', 'url = {path = "../u"}')),
    "uv's registry": ("uv.lock", (f"{HOST}/simple", "https://evil.test/simple")),
    "uv's registry, another index there": ("uv.lock", (f"{HOST}/simple", f"{HOST}/other")),
    "uv's source: git": ("uv.lock", ("registry = ", "git = ")),
    "uv's source: a folder": ("uv.lock", (f'registry = "{HOST}/simple"', 'directory = "../left"')),
    "uv's file from elsewhere": ("uv.lock", (f"{HOST}/files", "https://evil.test/files")),
    "uv's file, escaped": ("uv.lock", (f"{HOST}/files", "\\u0068ttps://evil.test/files")),
    "uv's hash removed": ("uv.lock", (f', hash = "sha256:{SHA}", size = 1', "")),
    "uv's hash of no kind that is known": ("uv.lock", ("sha256:", "md6:")),
    "Poetry's source": ("poetry.lock", (f"{HOST}/simple", f"{HOST}/evil")),
    "Poetry's source: git": ("poetry.lock", ('"legacy"', '"git"')),
    "Poetry's hash removed": ("poetry.lock", (f', hash = "sha256:{SHA}"', "")),
    "Poetry's files removed": (
        "poetry.lock",
        (f'\n    {{file = "left-1.0.0.whl", hash = "sha256:{SHA}"}},\n', ""),
    ),
    "pipenv's sources": ("Pipfile.lock", (HOST, "https://evil.test")),
    "pipenv's check of certificates": ("Pipfile.lock", ("true", "false")),
    "pipenv's hashes removed": ("Pipfile.lock", (f'"sha256:{SHA}"', "")),
    "an entry of pipenv's from git": (
        "Pipfile.lock",
        ('"version": "==1.0.0"', '"git": "https:\\/\\/evil.test\\/left"'),
    ),
    "pylock's index": ("pylock.toml", (f"{HOST}/simple", "https://evil.test/simple")),
    "pylock's hash removed": ("pylock.toml", (f'sha256 = "{SHA}"', "")),
    "npm: owner and name": ("package.json", ('"left": "1.0.0", "url"', '"left": "o/left", "url"')),
    "npm: GitHub": ("package.json", ('"left": "1.0.0", "url"', '"left": "github:o/l", "url"')),
    "npm: git": ("package.json", ('"left": "1.0.0", "url"', '"left": "git@e.test:l", "url"')),
    "npm: an archive": ("package.json", ('"left": "1.0.0"}}', '"left": "https://e.test/l"}}')),
    "npm: a folder": ("package.json", ('"left": "1.0.0", "url"', '"left": "../left", "url"')),
    "npm: another package": ("package.json", ("npm:@scope/left", "npm:@scope/evil")),
    "npm: escaped": (
        "package.json",
        ('"left": "1.0.0", "url"', '"left": "\\u0067it:\\/\\/e.test\\/l", "url"'),
    ),
    "npm: scripts": ("package.json", ("node --test", "true")),
    "npm's lock: host": ("package-lock.json", (HOST, "https://evil.test")),
    "npm's lock: no longer https": ("package-lock.json", (HOST, "http://registry.test")),
    "npm's lock: escaped": ("package-lock.json", (HOST, "https:\\/\\/evil.test")),
    "npm's lock: backslashes": ("package-lock.json", (HOST, "https:\\\\\\\\evil.test")),
    "npm's lock: a user before the host": (
        "package-lock.json",
        (f"{HOST}/left/", "https://registry.test@evil.test/left/"),
    ),
    "npm's lock: no ending": (
        "package-lock.json",
        (f"{HOST}/left/-/left-1.0.0.tgz", "https://e.test/l"),
    ),
    "npm's lock: git": (
        "package-lock.json",
        (f"{HOST}/left/-/left-1.0.0.tgz", "git+ssh://git@e.test/l.git#0"),
    ),
    "npm's lock: a link": ("package-lock.json", ('"version": "1.0.0"', '"link": true')),
    "npm's lock: integrity removed": (
        "package-lock.json",
        (f'"integrity": "sha512-{SHA}",', ""),
    ),
    "npm's lock: both removed": (
        "package-lock.json",
        (
            f'"resolved": "{HOST}/left/-/left-1.0.0.tgz",\n      "integrity": "sha512-{SHA}",',
            "",
        ),
    ),
    "npm's lock: integrity of no kind": ("package-lock.json", ("sha512-", "none-")),
    "npm's shrinkwrap": ("npm-shrinkwrap.json", (HOST, "https://evil.test")),
    "yarn: host": ("yarn.lock", (HOST, "https://evil.test")),
    "yarn: escaped": ("yarn.lock", (HOST, "\\u0068ttps://evil.test")),
    "yarn: git": ("yarn.lock", ("left@^1.0.0", '"left@git+https://e.test/l"')),
    "yarn: integrity removed": ("yarn.lock", (f"  integrity sha512-{SHA}\n", "")),
    "yarn: what no client writes": ("yarn.lock", ("  version", "   version")),
    "berry: another protocol": (
        "berry/yarn.lock",
        ('resolution: "left@npm:1.0.0"', 'resolution: "left@https://e.test/l.tgz"'),
    ),
    "berry: escaped": (
        "berry/yarn.lock",
        ('resolution: "left@npm:1.0.0"', 'resolution: "left@\\x67it@e.test:l.git"'),
    ),
    "berry: checksum removed": ("berry/yarn.lock", (f"  checksum: 10c0/{SHA}\n", "")),
    "pnpm: an archive": (
        "pnpm-lock.yaml",
        (f"integrity: sha512-{SHA}", f'integrity: sha512-{SHA}, tarball: "\\x68ttps://e.test/l"'),
    ),
    "pnpm: integrity removed": ("pnpm-lock.yaml", (f"{{integrity: sha512-{SHA}}}", "{}")),
    "pnpm: git": (
        "pnpm-lock.yaml",
        (f"{{integrity: sha512-{SHA}}}", "{type: git, repo: 'https://e.test/l', commit: a}"),
    ),
    "pnpm: aliases": (
        "pnpm-lock.yaml",
        ("specifier: ^1.0.0\n        version: 1.0.0", "specifier: &a 1.0.0\n        version: *a"),
    ),
    "pnpm's settings: members": ("pnpm-workspace.yaml", ("packages/*", "evil/*")),
    "pnpm's settings: a program": ("pnpm-workspace.yaml", ("--no-warnings", "--require=./e.cjs")),
    "pnpm's settings: one more": ("pnpm-workspace.yaml", ("overrides:", "pnpmfile: e\noverrides:")),
    "a catalog's entry from git": ("pnpm-workspace.yaml", ("left: 1.0.0", "left: github:o/l")),
    "a catalog's entry: a folder": ("pnpm-workspace.yaml", ("^0.11.0", "link:../url")),
    "another package in a named catalog": ("pnpm-workspace.yaml", ("@scope/left", "@scope/evil")),
    "pnpm's override from elsewhere": (
        "pnpm-workspace.yaml",
        ("left: 1.0.0\nnode", "left: o/l\nnode"),
    ),
    "requirements: an index": ("requirements.txt", (HOST, "https://evil.test")),
    "requirements: an option over two lines": (
        "requirements.txt",
        ("left[", "-\\\n-extra-index-url=https://e.test\nleft["),
    ),
    "requirements: an option of one line": (
        "requirements.txt",
        (" \\\n", " --config-settings=a=b \\\n"),
    ),
    "requirements: a folder": ("requirements.txt", ("left[", "./left\nleft[")),
    "requirements: an archive": ("requirements.txt", ("left[", "left.whl\nleft[")),
    "requirements: hash removed": ("requirements.txt", (f"--hash=sha256:{SHA}", "")),
}


@pytest.mark.parametrize("kind", CHANGED)
def test_no_other_source_no_other_setting_and_no_hash_less(kind: str) -> None:
    path, change = CHANGED[kind]
    assert problems(path, change), kind


def test_words_for_people_may_change() -> None:
    assert problems("package-lock.json", ("https://give.test/old", "https://give.test/new")) == []
    assert problems("poetry.lock", ("https://words.test", "https://others.test")) == []
    assert problems("requirements.txt", ("https://words.test", "https://others.test")) == []


def test_the_same_host_by_https_is_no_other_source() -> None:
    before = NPM_LOCK.replace("https://registry", "http://registry")
    assert list(manifest_problems("package-lock.json", (), before, NPM_LOCK)) == []


def test_of_what_had_no_hash_another_release_needs_none() -> None:
    old = {"node_modules/old": {"version": "1.0.0"}, **json.loads(NPM_LOCK)["packages"]}
    before = json.dumps({"packages": old})
    assert (
        list(manifest_problems("package-lock.json", (), before, before.replace("0.0", "0.1"))) == []
    )


def test_a_lock_without_hashes_needs_none() -> None:
    before = json.dumps({"packages": {"node_modules/left": {"version": "1.0.0"}}})
    after = before.replace("1.0.0", "1.0.1")
    assert list(manifest_problems("package-lock.json", (), before, after)) == []


@pytest.mark.parametrize("path", ["bun.lock", "environment.yml"])
def test_what_nothing_here_reads_may_not_change(path: str) -> None:
    assert list(manifest_problems(path, (), "a\n", "b\n"))


def test_a_program_that_its_ecosystem_does_not_read_may_not_change() -> None:
    """Without the rules of PyPI, nobody can judge what else a setup.py does."""
    (keys,) = (it for one in ECOSYSTEMS if (it := one.editable_keys("setup.py")) is not None)
    script = "setup(install_requires=['left>=1.0'])\n"
    assert list(manifest_problems("setup.py", keys, script, script.replace("1.0", "1.1")))
    assert recipe_only_reason("setup.py") is not None


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("package.json", '{"a":' * 400 + "1" + "}" * 400),
        ("package-lock.json", "[" * 100_000 + "]" * 100_000),
        ("pyproject.toml", "a" + ".a" * 400 + " = 1\n"),
        ("pnpm-lock.yaml", "".join("  " * at + "a:\n" for at in range(400))),
    ],
)
def test_what_nests_too_deep_is_refused(path: str, text: str) -> None:
    """No reader, and no walk behind one, ends in a traceback: whatever Python's own limit is."""
    problems = list(manifest_problems(path, (), text, text.replace("1", "2")))
    assert len(problems) == 1
    assert "can't be parsed: " in problems[0]


def test_what_nests_as_locks_do_is_read() -> None:
    text = '{"a":' * 99 + "1" + "}" * 99
    assert "may not be changed" in " ".join(
        manifest_problems("package.json", (), text, text.replace("1", "2"))
    )


SPLIT = """[[package]]
name = "app"
source = {{ registry = "https://a.example/simple" }}
dependencies = [{{ name = "b" }}{0}]
"""


@pytest.mark.parametrize(("host", "is_new"), [("a", False), ("b", True)])
def test_a_dependency_that_uv_splits_says_its_source_as_a_package_does(
    host: str, is_new: bool
) -> None:
    source = f'{{ registry = "https://{host}.example/simple" }}'
    more = f', {{ name = "source", version = "1", source = {source} }}'
    problems = list(manifest_problems("uv.lock", (), SPLIT.format(""), SPLIT.format(more)))
    assert bool(problems) is is_new
    assert all("b.example" in one for one in problems)
