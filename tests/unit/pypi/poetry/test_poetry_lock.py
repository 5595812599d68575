"""Poetry's words for versions, its formats and its content-hash, as text."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet

from fallback_plugins.pypi.manifests.markers import admits, in_dependencies, in_extras, is_same
from fallback_plugins.pypi.poetry.lock import PoetryLock, content_hash, with_release
from fallback_plugins.pypi.resolving.registry import Metadata, Release, ReleaseFile

_VERSIONS = st.builds(".".join, st.lists(st.integers(0, 4).map(str), min_size=1, max_size=3))
_CLAUSES = st.builds(
    "{}{}".format, st.sampled_from([">=", ">", "<", "<=", "!=", "=="]), _VERSIONS
) | st.builds("~={}.{}".format, st.integers(0, 4), st.integers(0, 4))


@pytest.mark.parametrize(
    ("specifier", "dependency", "extra"),
    [
        ("", "*", ""),
        ("<2.0,>=1.33", ">=1.33,<2.0", ">=1.33,<2.0"),
        ("==1.9", "1.9", "==1.9"),
        ("==1.*", "==1.*", "==1.*"),
        ("~=2.4", ">=2.4,<3.0", ">=2.4,<3.0"),
        ("~=2.4.1", ">=2.4.1,<2.5.0", ">=2.4.1,<2.5.0"),
        ("!=1.1", "!=1.1", "!=1.1"),
        ("!=8.1.*,>=6", ">=6,<8.1.dev0 || >=8.2.dev0", ">=6,!=8.1.*"),
        ("!=8.4.0,<10.0.0,>=8.1.0", ">=8.1.0,<8.4.0 || >8.4.0,<10.0.0", ">=8.1.0,!=8.4.0,<10.0.0"),
    ],
)
def test_constraints_are_written_as_poetry_writes_them(
    specifier: str, dependency: str, extra: str
) -> None:
    assert in_dependencies(SpecifierSet(specifier)) == dependency
    assert in_extras(SpecifierSet(specifier)) == extra


@given(st.lists(_CLAUSES, min_size=1, max_size=3, unique=True), _VERSIONS)
def test_what_is_written_admits_what_was_asked_for(clauses: list[str], version: str) -> None:
    specifier = SpecifierSet(",".join(clauses))
    wanted = specifier.contains(version, prereleases=True)
    assert admits(in_extras(specifier), version) == wanted
    assert admits(in_dependencies(specifier), version) == wanted
    assert is_same(in_dependencies(specifier), specifier)


@pytest.mark.parametrize(
    ("constraint", "version", "wanted"),
    [
        ("^1.2", "1.9", True),
        ("^1.2", "2.0", False),
        ("~1.2", "1.3", False),
        (">=1,<2 || >3", "3.1", True),
        (">=1,<2 || >3", "2.5", False),
        ("nonsense", "1", False),
    ],
)
def test_poetrys_own_words_are_read(constraint: str, version: str, wanted: bool) -> None:
    assert admits(constraint, version) is wanted


_OLD_FORMAT = """[[package]]
name = "leaf"
version = "1.0"
description = "A leaf"
category = "main"
optional = false
python-versions = "*"

[package.extras]
b = ["z", "a"]
a = ["y"]

[[package]]
name = "other"
version = "1"
description = ""
category = "dev"
optional = false
python-versions = "*"

[metadata]
lock-version = "1.1"
python-versions = "^3.9"
content-hash = "0"

[metadata.files]
leaf = [
    {file = "leaf-1.0.tar.gz", hash = "sha256:1"},
]
other = []
"""


def test_the_oldest_format_keeps_its_files_at_the_end() -> None:
    metadata = Metadata(
        'Summary: A "leaf"\nRequires-Python: >=3.9\nProvides-Extra: a\nProvides-Extra: b\n'
        "Requires-Dist: y ; extra == 'a'\nRequires-Dist: z ; extra == 'b'\n"
        "Requires-Dist: a ; extra == 'b'\n\n"
    )
    files = (ReleaseFile("leaf-1.1.tar.gz", "sha256:3"), ReleaseFile("Leaf-1.1.whl", "sha256:2"))
    new = with_release(
        PoetryLock("poetry.lock", _OLD_FORMAT), Release("leaf", "1.1", files), metadata
    )
    wanted = (
        _OLD_FORMAT.replace('version = "1.0"', 'version = "1.1"', 1)
        .replace('"A leaf"', '"A \\"leaf\\""')
        .replace('python-versions = "*"', 'python-versions = ">=3.9"', 1)
        .replace(
            '    {file = "leaf-1.0.tar.gz", hash = "sha256:1"},\n',
            '    {file = "Leaf-1.1.whl", hash = "sha256:2"},\n'
            '    {file = "leaf-1.1.tar.gz", hash = "sha256:3"},\n',
        )
    )
    assert new.text == wanted
    assert tomllib.loads(new.text)


_OF_POETRY_1_0 = """[[package]]
category = "main"
description = "A leaf"
name = "leaf"
optional = false
python-versions = "*"
version = "1.0"

[package.dependencies]
stem = "*"

[[package]]
category = "main"
description = ""
name = "parted"
optional = false
python-versions = "*"
version = "1.0"

[package.dependencies]
[package.dependencies.leaf]
python = "<3.8"
version = "*"

[metadata]
content-hash = "0"
python-versions = "^3.8"

[metadata.files]
leaf = [
    {file = "leaf-1.0.tar.gz", hash = "sha256:1"},
]
parted = []
"""


def test_a_lock_of_poetry_1_0_has_no_version_of_its_format() -> None:
    lock = PoetryLock("poetry.lock", _OF_POETRY_1_0)
    assert lock.format == "1.0"
    assert lock.refusal("leaf") is None
    metadata = Metadata("Summary: A leaf\nRequires-Python: >=3.8\nRequires-Dist: stem\n\n")
    files = (ReleaseFile("leaf-1.1.tar.gz", "sha256:3"),)
    new = with_release(lock, Release("leaf", "1.1", files), metadata)
    assert new.text == (
        _OF_POETRY_1_0.replace(
            'python-versions = "*"\nversion = "1.0"',
            'python-versions = ">=3.8"\nversion = "1.1"',
            1,
        ).replace('leaf-1.0.tar.gz", hash = "sha256:1"', 'leaf-1.1.tar.gz", hash = "sha256:3"')
    )


def test_an_entry_whose_dependencies_are_tables_of_their_own_is_not_edited() -> None:
    refusal = PoetryLock("poetry.lock", _OF_POETRY_1_0).refusal("parted")
    assert "says what parted requires in tables" in str(refusal)


def test_conditions_are_written_without_parentheses_that_say_nothing() -> None:
    text = _OLD_FORMAT.replace("[[package]]", "# generated by Poetry 2.1.0\n\n[[package]]", 1)
    metadata = Metadata(
        "Provides-Extra: a_b\n"
        "Requires-Dist: Y ; (os_name != 'x' and (os_name != 'y')) and extra == 'a_b'\n"
        "Requires-Dist: z ; os_name == 'x' and (os_name == 'y' or os_name == 'z') and extra == 'a_b'\n\n"
    )
    lock = PoetryLock("poetry.lock", text)
    new = with_release(lock, Release("leaf", "1.1", ()), metadata, {"a-b"})
    entry = tomllib.loads(new.text)["package"][0]
    assert entry["extras"] == {
        "a-b": [
            'Y ; os_name != "x" and os_name != "y"',
            'z ; os_name == "x" and (os_name == "y" or os_name == "z")',
        ]
    }
    assert entry["dependencies"]["Y"]["markers"] == (
        'os_name != "x" and os_name != "y" and extra == "a-b"'
    )


_PROJECT = '[project]\nname = "app"\ndependencies = ["leaf{}"]\n'


def test_the_content_hash_follows_the_way_that_made_the_old_one() -> None:
    before, after = _PROJECT.format("==1.0"), _PROJECT.format("==1.2")
    assert content_hash("pyproject.toml", before, after, "0" * 64) is None
    made = content_hash("pyproject.toml", before, before, _sha(before))
    assert made == _sha(before)
    assert content_hash("pyproject.toml", before, after, _sha(before)) == _sha(after)


def _sha(manifest: str) -> str:
    import hashlib
    import json

    dependencies = tomllib.loads(manifest)["project"]["dependencies"]
    relevant = {"project": {"dependencies": dependencies}, "tool": {"poetry": {}}}
    return hashlib.sha256(json.dumps(relevant, sort_keys=True).encode()).hexdigest()
