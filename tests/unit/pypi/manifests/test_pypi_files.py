"""Python's files as text: declarations, pins, and edits that touch one span."""

import json
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from fallback_plugins.pypi.manifests.kinds import Kind, kind_of
from fallback_plugins.pypi.manifests.pyproject import (
    is_excluded,
    replace_requirement,
    requirement_strings,
)
from fallback_plugins.pypi.manifests.requirements import (
    apply_edits,
    declaration_in,
    declarations,
    edits_for,
    poetry_specifier_in,
)
from fallback_plugins.pypi.plugin import mentions
from fallback_plugins.pypi.surveying.survey import pinned_versions
from fallback_tier.errors import RecipeError
from tests.kinds import OfKind


def bumped(text: str, package: str, version: str) -> str:
    edits = [edits_for(declaration, version) for declaration in declarations(text, package)]
    return apply_edits(text, tuple(edit for group in edits if group for edit in group))


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("requirements.txt", Kind.REQUIREMENTS),
        ("a/requirements-dev.in", Kind.REQUIREMENTS),
        ("docs_requirements.txt", Kind.REQUIREMENTS),
        ("requirements/dev.txt", Kind.REQUIREMENTS),
        ("a/constraints.txt", Kind.REQUIREMENTS),
        ("pyproject.toml", Kind.PYPROJECT),
        ("a/uv.lock", Kind.UV_LOCK),
        ("pylock.dev.toml", Kind.PYLOCK),
        ("setup.py", Kind.SETUP_PY),
        ("requirements/README.md", None),
        ("docs/dev.txt", None),
        (".venv/lib/x/requirements.txt", None),
    ],
)
def test_kinds(path: str, kind: Kind | None) -> None:
    assert kind_of(path) is kind


@pytest.mark.parametrize(
    ("line", "new"),
    [
        ("six==1.10.0", "six==1.16.1"),
        ("Six == 1.10.0", "Six == 1.16.1"),
        ("six===1.10.0", "six===1.16.1"),
        ("six [a,b]==1.10.0;python_version<'3'", "six [a,b]==1.16.1;python_version<'3'"),
        ("six (>=1.10)", "six (>=1.16.1)"),
        ("six>1.10,<2", "six>=1.16.1,<2"),
        ("six>=1.10,!=1.12.0,<2", "six>=1.16.1,!=1.12.0,<2"),
        ("six~=1.10", "six~=1.16,>=1.16.1"),
        ("six~=1.10.0", "six~=1.16.1"),
        ("six~=1.10.0.0", "six~=1.16.1.0"),
        ("six==1.10.0  # why", "six==1.16.1  # why"),
        ("six==1.9         # column", "six==1.16.1      # column"),
        ("six==1.10.0 --config-settings=a=b", "six==1.16.1 --config-settings=a=b"),
        ("six \\\n  ==1.10.0", "six \\\n  ==1.16.1"),
    ],
)
def test_bumps(line: str, new: str) -> None:
    text = f"# six==1.0\r\nother==1.10.0\r\n{line}\r\nsix-more==1.10.0\r\n-r six.txt"
    assert bumped(text, "six", "1.16.1") == text.replace(line, new)


@pytest.mark.parametrize(
    ("line", "version", "new"),
    [
        ("six>=1.10,<2.0", "2.1", "six>=2.1,<3.0"),
        ("six>=1.10, < 2", "2.1", "six>=2.1, < 3"),
        ("six>=1,<2.0.0", "3.4.5", "six>=3.4.5,<4.0.0"),
        ("six>=1.10,<1.12", "1.16.1", "six>=1.16.1,<1.17"),
        ("six<1.12.3", "1.16.1", "six<1.16.2"),
        ("six<=1.12", "1.16.1", "six<=1.16.1"),
        ("six==1.*", "2.1", "six==2.*"),
        ("six==1.10.*", "2", "six==2.0.*"),
        ("six<2.0rc1", "2.1", "six<3.0rc1"),
        ("six>=1,!=1.5,<2", "2.1", "six>=2.1,!=1.5,<3"),
    ],
)
def test_a_bound_moves_in_its_own_style(line: str, version: str, new: str) -> None:
    assert bumped(line, "six", version) == new


@pytest.mark.parametrize(
    ("spec", "version", "new"),
    [
        ("^1.2", "1.4", "^1.4"),
        ("^1.2", "2.1.3", "^2.1.3"),
        ("~1.2", "1.3.1", "~1.3.1"),
        ("~1", "1.3.1", ">=1.3.1,<2"),
        ("1.2.3", "2.1", "2.1"),
        ("1.*", "2.1", "2.*"),
        (">=1.2,<2.0", "2.1", ">=2.1,<3.0"),
        ("~=1.2.0", "1.3.1", "~=1.3.1"),
    ],
)
def test_poetrys_own_operators(spec: str, version: str, new: str) -> None:
    declaration = poetry_specifier_in(spec)
    assert declaration.refusal is None
    edits = edits_for(declaration, version)
    assert edits is not None
    assert apply_edits(spec, edits) == new
    assert poetry_specifier_in(new).admits(version)


@pytest.mark.parametrize(
    ("spec", "admitted", "refused"),
    [
        ("^1.2", "1.9", "2.0"),
        ("^0.2.3", "0.2.9", "0.3"),
        ("^0.0.3", "0.0.3", "0.0.4"),
        ("^0", "0.9", "1.0"),
        ("~1.2.3", "1.2.9", "1.3"),
        ("~1", "1.9", "2.0"),
        ("1.2", "1.2", "1.2.1"),
        ("*", "9", None),
    ],
)
def test_poetrys_ranges(spec: str, admitted: str, refused: str | None) -> None:
    declaration = poetry_specifier_in(spec)
    assert declaration.admits(admitted)
    assert refused is None or not declaration.admits(refused)


@pytest.mark.parametrize("line", ["six", "six<2", "six!=1.16.1", "six>=1.10,!=1.16.1"])
def test_what_cant_be_raised_is_left_alone(line: str) -> None:
    (declaration,) = declarations(line, "six")
    assert declaration.refusal is None
    assert edits_for(declaration, "1.16.1") is None


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("six @ https://host/six.whl", "URL"),
        ("git+https://host/six.git#egg=six", "URL"),
        ("-e git+https://host/six.git#egg=Six&subdirectory=x", "URL"),
        ("six==not a version", "can't be read"),
        ("six>=banana", "can't be read"),
    ],
)
def test_what_isnt_edited_as_text(line: str, words: str) -> None:
    (declaration,) = declarations(line, "six")
    assert words in (declaration.refusal or "")


def test_the_name_is_read_in_every_spelling() -> None:
    text = "zope.interface==1\nzope-Interface==2\nzope__interface==3\nzope.interface.x==4\n"
    assert pinned_versions("requirements.txt", text, "Zope_Interface") == ("1", "2", "3")


names = st.sampled_from(["six", "Six", "six-more", "idna", "s.ix"])
spec = st.sampled_from(["==1.2", " == 1.2.3", ">=1.0", ">=1.0,<3", "~=1.1", "", "<3", "!=1.2"])
line = st.builds(
    "{}{}{}{}{}".format,
    names,
    st.sampled_from(["", "[a]", " [a, b]"]),
    spec,
    st.sampled_from(["", " ; python_version > '3'", ";extra=='x'"]),
    st.sampled_from(["", " # six==1.2", "  # kept", "   "]),
)
other = st.sampled_from(["", "# six==1.2", "-r six.txt", "--index-url https://host", "\t"])


@given(st.lists(line | other, max_size=6), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_only_version_spans_change(lines: list[str], eol: str, final: bool) -> None:
    text = eol.join(lines) + (eol if final else "")
    new = bumped(text, "six", "2.5.1")
    old_lines, new_lines = text.split(eol), new.split(eol)
    assert len(old_lines) == len(new_lines)
    for before, now in zip(old_lines, new_lines, strict=True):
        if before == now:
            continue
        old, changed = _requirement(before), _requirement(now)
        assert old.name.lower() == "six"
        assert (changed.name, changed.extras, changed.marker) == (old.name, old.extras, old.marker)
        assert "2.5.1" in changed.specifier
        assert now.split("#")[1:] == before.split("#")[1:]
        # Undo: what is left of the line is what was there.
        assert _without_versions(now) == _without_versions(before)


def _requirement(line: str) -> Requirement:
    return Requirement(line.split(" #")[0])


def _without_versions(line: str) -> str:
    head, mark, tail = line.partition(";") if ";" in line else line.partition("#")
    for text in (",>=2.5.1", "2.5.1", "2.5", "1.2.3", "1.2", "1.1", "1.0"):
        head = head.replace(text, "")
    return head + mark + tail


ranges = st.lists(
    st.builds(
        "{}{}".format,
        st.sampled_from([">=", ">", "<", "<=", "~=", "!=", "=="]),
        st.sampled_from(["1.0", "1.2.3", "2.0", "3.0.0", "1.4.*"]),
    ),
    max_size=3,
    unique=True,
)


@given(ranges, st.sampled_from(["1.5", "2.5.1", "3.1", "10.0"]))
def test_a_raised_range_admits_the_version(clauses: list[str], version: str) -> None:
    asked = "six" + ",".join(clauses)
    (declaration,) = declarations(asked, "six")
    edits = None if declaration.refusal else edits_for(declaration, version)
    if edits is None:
        return
    new = apply_edits(asked, edits)
    (raised,) = declarations(new, "six")
    assert raised.admits(version)
    # Operators stay, but for ">" (a bound is named as it is) and what "~=" needs to be exact.
    kept = [clause.operator for clause in raised.clauses]
    floors = {">", ">="}
    assert [it for it in kept if it not in floors] == [
        it.operator for it in declaration.clauses if it.operator not in floors
    ]
    # What was excluded by name stays excluded.
    assert [it for it in new.split(",") if "!=" in it] == [
        it for it in asked.split(",") if "!=" in it
    ]


@given(spec, st.sampled_from(["1.5", "2.5.1", "3.1"]))
def test_a_raised_declaration_admits_the_version_and_nothing_lower(
    asked: str, version: str
) -> None:
    (declaration,) = declarations(f"six{asked}", "six")
    edits = edits_for(declaration, version)
    if edits is None:
        return
    new = SpecifierSet(apply_edits(f"six{asked}", edits).removeprefix("six"))
    assert new.contains(version)
    if not declaration.floors and not declaration.pin:
        return
    assert not any(new.contains(lower) for lower in ("1.0", "1.1", "1.2", "1.2.3", "1.4"))


PYPROJECT = """\
# top
[project]
name = "x"
version = "1"  # six==1.10.0
dependencies = [
\t"six==1.10.0",  # "six==1.10.0"
    'idna>=2',
]
[project.optional-dependencies]
dev = ["six==1.10.0","Six>=1.9"]
[dependency-groups]
test = [{include-group = "x"}, "six~=1.10"]
[tool.x]
list = ["six==1.10.0"]
"""


def test_pyproject_strings_and_pins() -> None:
    strings = requirement_strings("pyproject.toml", PYPROJECT, "six")
    assert [string.keys for string in strings] == [
        ("project", "dependencies", 0),
        ("project", "optional-dependencies", "dev", 0),
        ("project", "optional-dependencies", "dev", 1),
        ("dependency-groups", "test", 1),
    ]
    assert pinned_versions("a/pyproject.toml", PYPROJECT, "six") == ("1.10.0",)


@pytest.mark.parametrize("index", range(4))
def test_pyproject_edits_touch_one_string(index: int) -> None:
    string = requirement_strings("pyproject.toml", PYPROJECT, "six")[index]
    new = replace_requirement("pyproject.toml", PYPROJECT, string.keys, "six==9")
    assert requirement_strings("pyproject.toml", new, "six")[index].value == "six==9"
    pairs = list(zip(PYPROJECT.splitlines(), new.splitlines(), strict=True))
    changed = [(old, now) for old, now in pairs if old != now]
    assert len(changed) == 1
    assert changed[0][0].replace(string.value, "six==9", 1) == changed[0][1]
    assert tomllib.loads(new)["tool"] == tomllib.loads(PYPROJECT)["tool"]


def test_pyproject_that_cant_be_edited_or_read() -> None:
    escaped = '[project]\ndependencies = ["s\\u0069x==1"]\n'
    (string,) = requirement_strings("pyproject.toml", escaped, "six")
    with pytest.raises(RecipeError, check=OfKind("not_plain")):
        replace_requirement("pyproject.toml", escaped, string.keys, "six==2")
    with pytest.raises(RecipeError, check=OfKind("not_toml")):
        requirement_strings("pyproject.toml", "[", "six")


def test_locks() -> None:
    uv = '[[package]]\nname = "six"\nversion = "1.16.0"\n[[package]]\nname = "x"\n'
    assert pinned_versions("uv.lock", uv, "Six") == ("1.16.0",)
    assert pinned_versions("a/poetry.lock", uv, "six") == ("1.16.0",)
    assert pinned_versions("pylock.toml", uv.replace("package", "packages"), "six") == ("1.16.0",)
    pipfile = json.dumps({"_meta": {}, "default": {"six": {"version": "==1.16.0"}}, "develop": {}})
    assert pinned_versions("Pipfile.lock", pipfile, "six") == ("1.16.0",)
    assert pinned_versions("notes.txt", "six==1", "six") == ()
    with pytest.raises(RecipeError, check=OfKind("not_json")):
        pinned_versions("Pipfile.lock", "{", "six")


@given(st.text(max_size=60))
def test_any_text_is_read(text: str) -> None:
    for declaration in declarations(text, "six"):
        for clause in declaration.clauses:
            assert text[clause.start : clause.end].strip() == clause.version
    declaration_in(text, "six")


@pytest.mark.parametrize(
    ("package", "line", "expected"),
    [
        ("PyYAML", "import yaml", True),
        ("pillow", "from PIL import Image", True),
        ("python-dateutil", "import dateutil.parser", True),
        ("Django", "    from django.http import HttpResponse", True),
        ("typing-extensions", "import os, typing_extensions", True),
        ("six", "import six as s", True),
        ("six", "import sixteen", False),
        ("six", "# import six", False),
        ("six", "x = 'import six'", False),
    ],
)
def test_mentions(package: str, line: str, expected: bool) -> None:
    assert mentions(package, "a/b.py", f"x = 1\n{line}\n") is expected
    assert not mentions(package, "a/b.txt", line)


@pytest.mark.parametrize(
    ("python", "marker", "excluded"),
    [
        ("", "python_version < '3'", True),
        ("", 'python_version < "3.5" or sys_platform == "cli"', False),
        ("", "python_version < '3.8'", False),
        ("", "", False),
        ("", "no marker", False),
        (">=3.9", "python_version < '3.9'", True),
        (">=3.9", "python_version < '3.9' and extra == 'x'", True),
        (">=3.9", "python_full_version < '3.9.1'", False),
        (">=3.9,<4", "python_version >= '4'", True),
        (">=2.7", "python_version < '3'", False),
        ("nonsense", "python_version < '3'", False),
        (">=9", "python_version < '3'", False),
    ],
)
def test_a_marker_may_exclude_every_python_of_the_project(
    python: str, marker: str, excluded: bool
) -> None:
    text = f'[project]\nrequires-python = "{python}"\n' if python else "[project]\n"
    assert is_excluded("pyproject.toml", text, marker) is excluded
