"""What a project's direct dependencies are called, and what they are imported as."""

from importlib.metadata import Distribution, distributions
from pathlib import Path

import pytest

from fallback_plugins.pypi.gates.checks import asked_for, import_names
from tests.unit.shared.recipes import repository


def installed(place: Path, name: str, *paths: str, namespaces: str = "") -> Distribution:
    """As an installer leaves it: metadata, and the list of its files."""
    folder = place / f"{name.replace('-', '_')}-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    for path in paths:
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).touch()
    (folder / "RECORD").write_text("".join(f"{path},,\n" for path in paths))
    if namespaces:
        (folder / "namespace_packages.txt").write_text(namespaces)
    (found,) = distributions(path=[str(place)])
    return found


@pytest.mark.parametrize(
    ("name", "paths", "modules"),
    [
        ("six", ["six.py", "six-1.0.dist-info/METADATA"], ["six"]),
        ("PyYAML", ["_yaml/__init__.py", "yaml/__init__.py", "yaml/nodes.py"], ["yaml"]),
        ("attrs", ["attr/__init__.py", "attrs/__init__.py"], ["attrs", "attr"]),
        ("lxml", ["lxml/__init__.py", "lxml/etree.cpython-311-x86_64-linux-gnu.so"], ["lxml"]),
        ("quick", ["quick.abi3.so"], ["quick"]),
        # A namespace is shared: what counts is what a distribution has in it.
        (
            "protobuf",
            ["google/protobuf/__init__.py", "google/protobuf/any.py", "google/_upb/_message.so"],
            ["google.protobuf"],
        ),
        ("api-one", ["api/two/__init__.py", "api/one/__init__.py"], ["api.one", "api.two"]),
        ("protos", ["google/api/http_pb2.py"], ["google.api.http_pb2"]),
        # A program without a module, data, tests that lie beside, names that no program can say.
        ("ruff", ["../../../bin/ruff", "../../../share/ruff/setup.py"], []),
        (
            "odd",
            ["odd-data/run.py", "tests/__init__.py", "docs/conf.py", "odd/__init__.py"],
            ["odd"],
        ),
        ("black", ["black/__init__.py", "a1b2__mypyc.so", "3c22__mypyc.so"], ["black"]),
        ("types-six", ["six-stubs/__init__.pyi"], []),
    ],
)
def test_a_distribution_is_imported_by_what_it_brings(
    tmp_path: Path, name: str, paths: list[str], modules: list[str]
) -> None:
    assert import_names(installed(tmp_path, name, *paths)) == modules


def test_a_declared_namespace_is_no_package_of_its_own(tmp_path: Path) -> None:
    paths = ["zope/__init__.py", "zope/interface/__init__.py"]
    found = installed(tmp_path, "zope.interface", *paths, namespaces="zope\n")
    assert import_names(found) == ["zope.interface"]


PYPROJECT = """\
[project]
name = "app"
dependencies = ["Flask>=2 ; python_version > '3'", "left-pad[extra]==1.0"]
[project.optional-dependencies]
test = ["pytest"]
docs = ["sphinx"]
[dependency-groups]
dev = ["mypy", {include-group = "lint"}]
lint = ["ruff"]
site = ["mkdocs"]
"""
POETRY = """\
[tool.poetry]
name = "app"
[tool.poetry.dependencies]
python = "^3.9"
Flask = "^2.0"
[tool.poetry.group.dev.dependencies]
pytest = "*"
"""
LOCKED = '[[package]]\nname = "{}"\nversion = "1.0"\n'
UV_LOCK = """\
version = 1
requires-python = ">=3.9"

[[package]]
name = "app"
version = "1"
source = { virtual = "." }
dependencies = [{ name = "flask" }]

[[package]]
name = "flask"
version = "2.0"
source = { registry = "https://example.org/simple" }
dependencies = [{ name = "werkzeug" }]

[[package]]
name = "member"
version = "1"
source = { editable = "libs/member" }
dependencies = [{ name = "werkzeug" }]

[[package]]
name = "werkzeug"
version = "2.0"
source = { registry = "https://example.org/simple" }
"""


@pytest.mark.parametrize(
    ("files", "names"),
    [
        ({"pyproject.toml": PYPROJECT}, "flask left-pad mypy ruff pytest"),
        ({"requirements.txt": "b==1 # why\n-r more.txt\n", "more.txt": "c\n"}, "b c"),
        ({"setup.cfg": "[options]\ninstall_requires =\n  flask>=1\n"}, "flask"),
        ({"pyproject.toml": POETRY}, "flask pytest"),
        # Beside a lock nobody installs from them, and they say all the same what is asked for.
        ({"pyproject.toml": POETRY, "poetry.lock": LOCKED.format("werkzeug")}, "flask pytest"),
        ({"Pipfile": '[packages]\nflask = "*"\n', "Pipfile.lock": "{}"}, "flask"),
        # Nothing says what was asked for.
        ({"poetry.lock": LOCKED.format("flask") + LOCKED.format("click")}, "flask click"),
        # A workspace is installed with its members.
        ({"pyproject.toml": "[project]\n", "uv.lock": UV_LOCK}, "flask werkzeug"),
        ({"pyproject.toml": "[project", "uv.lock": "[", "setup.py": "("}, ""),
        ({}, ""),
    ],
)
def test_what_is_asked_for_is_told_by_the_manifests(
    tmp_path: Path, files: dict[str, str], names: str
) -> None:
    assert asked_for(repository(tmp_path, files), ".") == tuple(names.split())
