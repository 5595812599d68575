"""Which packages a repository is the source of: parsed, never matched by line."""

import json
from pathlib import Path

import pytest

from fallback_plugins.npm import build_ecosystem as npm
from fallback_plugins.pypi import build_ecosystem as pypi
from fallback_plugins.pypi.manifests.metadata import setup_call
from fallback_plugins.shared.identity import ASIDE, UNPUBLISHED, UNREADABLE
from fallback_tier.affected import OwnPackage
from tests.unit.shared.recipes import FakeClients, repository

#: What is asked for: all names that these files have anywhere.
NAMES = frozenset(
    {
        "my-lib",
        "lib",
        "requests",
        "lodash",
        "a",
        "b",
        "@s/a",
        "@s/b",
        "root",
        "app",
        "moment",
        "idna",
    }
)


def told(tmp_path: Path, files: dict[str, str], *, python: bool) -> tuple[OwnPackage, ...]:
    plugin = (pypi if python else npm)(FakeClients())
    return plugin.own_packages(repository(tmp_path, files), NAMES)


def named(tmp_path: Path, files: dict[str, str], *, python: bool = True) -> dict[str, str | None]:
    """Those without a doubt."""
    return {one.name: one.version for one in told(tmp_path, files, python=python) if not one.doubt}


def doubted(tmp_path: Path, files: dict[str, str], *, python: bool) -> dict[str, str]:
    return {one.name: one.doubt for one in told(tmp_path, files, python=python) if one.doubt}


def package(name: str, version: str | None = "1.0.0", **more: object) -> str:
    return json.dumps({"name": name, **({"version": version} if version else {}), **more})


PYTHON = {
    "PEP 621": (
        {"pyproject.toml": '[project]\nname = "My.Lib"\nversion = "1.2"\n'},
        {"my-lib": "1.2"},
    ),
    "a computed version": (
        {"pyproject.toml": '[project]\nname = "lib"\ndynamic = ["version"]\n'},
        {"lib": None},
    ),
    "Poetry": (
        {"pyproject.toml": '[tool.poetry]\nname = "lib"\nversion = "2.0"\n'},
        {"lib": "2.0"},
    ),
    "flit": ({"pyproject.toml": '[tool.flit.metadata]\nmodule = "lib"\n'}, {"lib": None}),
    "setup.cfg": ({"setup.cfg": "[metadata]\nname = lib\nversion = 1.0\n"}, {"lib": "1.0"}),
    "setup.cfg with an attribute": (
        {"setup.cfg": "[metadata]\nname = lib\nversion = attr: lib.__version__\n"},
        {"lib": None},
    ),
    "setup() on one line": (
        {"setup.py": "from setuptools import setup\nsetup(name='lib', version='3.1')\n"},
        {"lib": "3.1"},
    ),
    "setup() with names": (
        {
            "setup.py": 'import setuptools\nNAME = "lib"\nV = "1." + "0"\n'
            "about = dict(version=V)\nabout['url'] = 'https://x.test/o/lib'\n"
            "def main():\n    setuptools.setup(name=NAME, **about)\n"
        },
        {"lib": "1.0"},
    ),
    "pyproject without a name, setup.py with one": (
        {"pyproject.toml": "[build-system]\nrequires = []\n", "setup.py": "setup(name='lib')\n"},
        {"lib": None},
    ),
    "a name that is computed": (
        {"setup.py": "about = {}\nsetup(name=about['__title__'])\n", "my_lib/__init__.py": ""},
        {"my-lib": None},
    ),
    "another setup() inside": (
        {
            "setup.py": "def t():\n    import django\n    django.setup(set_prefix=False)\n"
            "setup(name='lib', version='1.0')\n"
        },
        {"lib": "1.0"},
    ),
    "a formatted text": ({"setup.py": "N = 'lib'\nsetup(name=f'{N}')\n"}, {"lib": None}),
    "an annotated name": ({"setup.py": "N: str = 'lib'\nsetup(name=N)\n"}, {"lib": None}),
    "both branches": (
        {"setup.py": "if X:\n    N = 'lib'\nelse:\n    N = 'lib'\nsetup(name=N)\n"},
        {"lib": None},
    ),
    "a table that is updated": (
        {"setup.py": "kw = {}\nkw.update(name='lib')\nsetup(**kw)\n"},
        {"lib": None},
    ),
    "a setup.cfg with a bare word": (
        {"setup.cfg": "[metadata]\nname = lib\nurl\n"},
        {"lib": None},
    ),
    "a single module": (
        {"setup.py": "setup(name=f(), py_modules=['lib'])\n", "lib.py": ""},
        {"lib": None},
    ),
    "a setup script of Python 2": (
        {"setup.py": "print 'hello'\nsetup(name='lib')\n", "src/lib/__init__.py": ""},
        {"lib": None},
    ),
    "members of a monorepo": (
        {
            "libs/a/pyproject.toml": '[project]\nname = "a"\nversion = "1.0"\n',
            "libs/b/pyproject.toml": '[project]\nname = "b"\nversion = "2.0"\n',
        },
        {"a": "1.0", "b": "2.0"},
    ),
}

NOT_PYTHON = {
    "an index of that name": {
        "pyproject.toml": '[project]\nname = "app"\n[[tool.uv.index]]\nname = "requests"\nurl = "u"\n'
    },
    "a tool's own name": {
        "pyproject.toml": '[tool.thing]\nname = "requests"\n[project]\nname="app"\n'
    },
    "another section of setup.cfg": {
        "setup.cfg": "[metadata]\nname=app\n[tool:x]\nname = requests\n"
    },
    "a name in a text of setup.py": {
        "setup.py": 'X = """\nname = "requests"\n"""\nsetup(name="app")\n'
    },
    "an extension's name": {"setup.py": "setup(name='app', ext=[Extension(name='requests')])\n"},
    "an example": {
        "pyproject.toml": '[project]\nname = "app"\n',
        "examples/x/pyproject.toml": '[project]\nname = "requests"\n',
    },
    "a vendored copy": {
        "setup.py": "setup(name='app')\n",
        "app/third_party/requests/setup.py": "setup(name='requests')\n",
    },
    "a fixture": {"tests/data/setup.py": "setup(name='requests')\n"},
    "a setup.cfg of another": {"setup.cfg": "[metadata]\nname = app\nurl\n"},
    "what must not be uploaded": {
        "pyproject.toml": '[project]\nname = "requests"\nclassifiers = ["Private :: Do Not Upload"]\n'
    },
    "what is no TOML": {"pyproject.toml": "[project\nname = 'requests'\n"},
    "a computed name, and another package": {
        "setup.py": "import os\nsetup(name=os.environ['NAME'])\n",
        "app/__init__.py": "",
        "app/requests/__init__.py": "",
        "tests/__init__.py": "",
    },
}


@pytest.mark.parametrize("case", PYTHON)
def test_python_packages_are_named_by_their_own_tables(tmp_path: Path, case: str) -> None:
    files, expected = PYTHON[case]
    assert named(tmp_path, files) == expected


@pytest.mark.parametrize("case", NOT_PYTHON)
def test_no_other_line_makes_a_repository_a_python_package(tmp_path: Path, case: str) -> None:
    assert "requests" not in named(tmp_path, NOT_PYTHON[case])


NPM = {
    "the root": ({"package.json": package("lib")}, {"lib": "1.0.0"}),
    "a private root with a version, as lodash has": (
        {"package.json": package("lib", private=True)},
        {"lib": "1.0.0"},
    ),
    "a placeholder": ({"package.json": package("lib", "0.0.0-development")}, {"lib": None}),
    "every workspace member": (
        {
            "package.json": package("root", None, private=True, workspaces=["packages/*"]),
            "packages/a/package.json": package("@s/a", "1.1.0"),
            "packages/b/package.json": package("@s/b", "2.0.0"),
        },
        {"@s/a": "1.1.0", "@s/b": "2.0.0"},
    ),
    "a member called testing": (
        {
            "package.json": package("root", None, private=True, workspaces=["packages/*"]),
            "packages/testing/package.json": package("a", "1.1.0"),
        },
        {"a": "1.1.0"},
    ),
    "pnpm's members": (
        {
            "package.json": package("root", None, private=True),
            "pnpm-workspace.yaml": "packages:\n  - 'libs/*'\n",
            "libs/a/package.json": package("a", None),
        },
        {"a": None},
    ),
    "a folder that is published by a tool of its own": (
        {"package.json": package("root"), "packages/a/package.json": package("a", "3.0.0")},
        {"root": "1.0.0", "a": "3.0.0"},
    ),
}

NOT_NPM = {
    "an application of that name": {"package.json": package("lodash", None, private=True)},
    "an example": {
        "package.json": package("app"),
        "example/package.json": package("lodash"),
    },
    "a fixture below tests": {
        "package.json": package("app"),
        "test/fixtures/a/package.json": package("lodash"),
    },
    "an installed copy": {
        "package.json": package("app"),
        "node_modules/lodash/package.json": package("lodash"),
    },
    "a private folder beside": {
        "package.json": package("app"),
        "tools/package.json": package("lodash", private=True),
    },
    "what is no JSON": {"package.json": "{'name': 'lodash'"},
    "a list": {"package.json": '["lodash"]'},
}


@pytest.mark.parametrize("case", NPM)
def test_npm_packages_are_the_root_its_members_and_what_may_be_published(
    tmp_path: Path, case: str
) -> None:
    files, expected = NPM[case]
    assert named(tmp_path, files, python=False) == expected


@pytest.mark.parametrize("case", NOT_NPM)
def test_no_other_manifest_makes_a_repository_an_npm_package(tmp_path: Path, case: str) -> None:
    assert "lodash" not in named(tmp_path, NOT_NPM[case], python=False)


def test_a_package_that_installs_one_of_its_own_name_shares_it_only(tmp_path: Path) -> None:
    files = {"package.json": package("moment", dependencies={"moment": "^2.0.0"})}
    (one,) = told(tmp_path, files, python=False)
    assert one.asks_for_itself
    files = {"package.json": package("moment", devDependencies={"moment": "^2.0.0"})}
    (one,) = told(tmp_path / "dev", files, python=False)
    assert not one.asks_for_itself, "an earlier release is often used to build the next"
    python = {"pyproject.toml": '[project]\nname = "idna"\ndependencies = ["idna>=3"]\n'}
    (one,) = told(tmp_path / "python", python, python=True)
    assert one.asks_for_itself


def test_links_are_read_from_wherever_they_may_stand(tmp_path: Path) -> None:
    where = {"url": "git+https://h.test/o/lib.git"}
    manifest = package(
        "lib", repository=where, homepage="https://lib.test", bugs="https://h.test/o/lib/i"
    )
    (one,) = told(tmp_path, {"package.json": manifest}, python=False)
    assert one.links == (where["url"], "https://lib.test", "https://h.test/o/lib/i")
    table = '[project]\nname = "lib"\n[project.urls]\nSource = "https://h.test/o/lib"\n'
    (one,) = told(tmp_path / "python", {"pyproject.toml": table}, python=True)
    assert one.links == ("https://h.test/o/lib",)


DOUBTS = {
    "a vendored copy with its code": (
        {
            "setup.py": "setup(name='app')\n",
            "app/third_party/requests/setup.py": "setup(name='requests')\n",
        }
        | {"app/third_party/requests/requests.py": ""},
        {"requests": ASIDE},
        True,
    ),
    "what must not be uploaded, with code": (
        {"pyproject.toml": NOT_PYTHON["what must not be uploaded"]["pyproject.toml"], "r.py": ""},
        {"requests": UNPUBLISHED},
        True,
    ),
    "a name that nobody can read, and an example that pins the package": (
        {"setup.py": "setup(name=f())\n", "examples/requirements.txt": "requests==1.0\n"},
        {"requests": UNREADABLE},
        True,
    ),
    "an example with code": (
        {"package.json": package("app"), "example/package.json": package("lodash")}
        | {"example/index.js": ""},
        {"lodash": ASIDE},
        False,
    ),
    "private and without a version": (
        {"package.json": package("lodash", None, private=True), "index.js": ""},
        {"lodash": UNPUBLISHED},
        False,
    ),
}


@pytest.mark.parametrize("case", DOUBTS)
def test_what_may_be_the_source_is_a_doubt(tmp_path: Path, case: str) -> None:
    files, expected, python = DOUBTS[case]
    assert doubted(tmp_path, files, python=python) == expected


def test_a_dependency_of_a_root_without_a_readable_name_is_none(tmp_path: Path) -> None:
    files = {"setup.py": "setup(name=f())\n", "requirements.txt": "requests==1.0\n"}
    assert told(tmp_path, files, python=True) == ()


def test_extras_of_ones_own_are_no_other_package(tmp_path: Path) -> None:
    asks = 'dependencies = ["idna[all]; extra == \'dev\'", "idna[fast]==1.0"]'
    files = {"pyproject.toml": f'[project]\nname = "idna"\n{asks}\n'}
    (one,) = told(tmp_path, files, python=True)
    assert not one.asks_for_itself


@pytest.mark.parametrize(
    "files",
    [
        {"package.json": '{"name": "\\ud800", "version": "1.0.0"}'},
        {
            "package.json": '{"name": ["lib"], "version": 7, "repository": [[1]], "bugs": {"url": {}}}'
        },
        {"package.json": '{"name": "lib", "version": "' + "9" * 5_000 + '"}'},
        {"package.json": package("lib", workspaces={"packages": [1, {}]})},
        {"package.json": package("lib"), "test/fixtures/package.json": "\udcff"},
        {"setup.py": "setup(name='lib\\ud800')"},
        {"pyproject.toml": '[project]\nname = ["lib"]\nversion = 1\nurls = "x"\n'},
        {"setup.cfg": "[metadata\nname = lib\n"},
    ],
)
def test_a_hostile_manifest_is_no_error(tmp_path: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (place := tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text.encode("utf-8", "surrogateescape"))
    repo = repository(tmp_path, {})
    repo = repo.model_copy(update={"tracked_files": tuple(files)})
    for build in (npm, pypi):
        for one in build(FakeClients()).own_packages(repo, NAMES):
            assert one.version is None or len(one.version) < 400


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5_000,
        "setup(" + "-" * 3_000 + "1)",
        "setup(name=" + "(" * 150 + "1" + ")" * 150 + ")",
        "\0",
        "x = 'ab'\n" + "y = " + "+".join("x" * 1) + "\n",
    ],
)
def test_a_hostile_setup_script_names_nothing(text: str) -> None:
    assert setup_call(text).keywords.get("name") is None


def test_a_name_that_grows_is_given_up() -> None:
    grows = "x = 'a' * 1\nw = 'abcdefgh'\n"
    for one, other in zip("yzabc", "wyzab", strict=True):
        grows += f"{one} = " + " + ".join(other for _ in range(200)) + "\n"
    assert setup_call(grows + "setup(name=c)\n").keywords.get("name") is None


def test_many_scripts_without_a_readable_name_are_read_once(tmp_path: Path) -> None:
    files = {f"p{number}/setup.py": "setup(name=f())\n" for number in range(100)}
    repo = repository(tmp_path, files)
    many = tuple(f"src/m{number}/f{number}.py" for number in range(20_000))
    repo = repo.model_copy(update={"tracked_files": (*repo.tracked_files, *many)})
    assert pypi(FakeClients()).own_packages(repo, NAMES) == ()


def test_a_setup_cfg_that_can_not_be_read_is_no_crash(tmp_path: Path) -> None:
    """A key without a value, and lines below it: the parser itself ends with an AttributeError."""
    text = "[metadata]\nname = lib\n[options]\ninstall_requires\n    requests\n"
    assert named(tmp_path, {"setup.cfg": text, "lib.py": ""}) == {"lib": None}
