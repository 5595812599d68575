"""A lock that does not answer what its manifest asks for: never "not affected", but the command to run.

No client runs: this is told from the files alone.
"""

import hashlib
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.pypi import build_ecosystem
from fallback_tier.outcome import NotApplicable, Selected
from tests.unit.pypi.pypi_files import RECORD, offline
from tests.unit.shared.recipes import FakeClients, refusal

Files = Mapping[str, str]


def _uv(held: Mapping[str, str], *asked: str, more: str = "") -> Files:
    packages = "".join(
        f'\n[[package]]\nname = "{name}"\nversion = "{version}"\n'
        'source = { registry = "https://example.org/simple" }\n'
        for name, version in held.items()
    )
    return {
        "uv.lock": 'version = 1\nrequires-python = ">=3.9"\n\n[[package]]\nname = "app"\n'
        f'version = "1"\nsource = {{ virtual = "." }}\n{packages}',
        "pyproject.toml": f'[project]\nname = "app"\nversion = "1"\ndependencies = {list(asked)}\n{more}',
    }


def _poetry(held: Mapping[str, str], *asked: str, lock: str = "2.0", digest: str = "0") -> Files:
    blocks = "".join(
        f'[[package]]\nname = "{name}"\nversion = "{version}"\ndescription = ""\noptional = false\n'
        'python-versions = "*"\nfiles = []\n\n'
        for name, version in held.items()
    )
    lines = "".join(f"{line}\n" for line in asked)
    return {
        "poetry.lock": f'{blocks}[metadata]\nlock-version = "{lock}"\npython-versions = "^3.9"\n'
        f'content-hash = "{digest}"\n',
        "pyproject.toml": '[tool.poetry]\nname = "app"\n\n[tool.poetry.dependencies]\npython = "^3.9"\n'
        + lines,
    }


def _pipenv(held: Mapping[str, str], *asked: str) -> Files:
    default = {name: {"version": f"=={version}", "hashes": []} for name, version in held.items()}
    meta = {"hash": {"sha256": "0"}, "pipfile-spec": 6, "requires": {}, "sources": []}
    lock = {"_meta": meta, "default": default, "develop": {}}
    return {
        "Pipfile.lock": json.dumps(lock, indent=4) + "\n",
        "Pipfile": "[packages]\n" + "".join(f"{line}\n" for line in asked),
    }


def _compiled(held: Mapping[str, str], *asked: str) -> Files:
    return {
        "requirements.in": "".join(f"{line}\n" for line in asked),
        "requirements.txt": "".join(
            f"{name}=={version}\n    # via -r requirements.in\n" for name, version in held.items()
        ),
    }


def _pdm(held: Mapping[str, str], *asked: str) -> Files:
    packages = "".join(
        f'[[package]]\nname = "{name}"\nversion = "{version}"\n\n' for name, version in held.items()
    )
    return {"pdm.lock": packages, "pyproject.toml": _uv({}, *asked)["pyproject.toml"]}


SIX = {"six": "1.0"}

#: What the manifest asks for and the lock does not hold: the package itself, or what may bring it in.
LACKING = {
    "uv": (_uv(SIX, "six", "{}"), "uv.lock", "`uv lock`"),
    "uv, a group": (
        _uv(SIX, more='[dependency-groups]\ndev = ["{}"]\n'),
        "uv.lock",
        "`uv lock`",
    ),
    "pdm": (_pdm(SIX, "six", "{}"), "pdm.lock", "`pdm lock`"),
    "compiled": (
        _compiled(SIX, "six", "{}"),
        "requirements.txt",
        "`pip-compile requirements.in`",
    ),
}
TABLES = {
    "poetry 1": (
        _poetry(SIX, '"{}" = ">=3.0"'),
        "poetry.lock",
        "`poetry lock --no-update`",
    ),
    "poetry 2": (_poetry(SIX, '"{}" = "^3.0"', lock="2.1"), "poetry.lock", "`poetry lock`"),
    "pipenv": (_pipenv(SIX, '"{}" = ">=3.0"'), "Pipfile.lock", "`pipenv lock`"),
}


def _filled(files: Files, word: str) -> Files:
    return {
        path: text.replace("{}", word) if not path.endswith(".lock") else text
        for path, text in files.items()
    }


@pytest.mark.parametrize("kind", [*LACKING, *TABLES])
@pytest.mark.parametrize("name", ["idna", "brings-it-in"])
def test_a_lock_without_what_is_asked_for_shows_nobody_safe(
    tmp_path: Path, kind: str, name: str
) -> None:
    files, lock, command = {**LACKING, **TABLES}[kind]
    word = f"{name}>=3.0" if kind in LACKING else name
    repo = offline(tmp_path, _filled(files, word))
    plugin = build_ecosystem(FakeClients())
    reported = refusal(plugin, RECORD, repo)
    assert reported.reason is RefusalReason.UNKNOWN
    assert f"requires {name}>=3.0" in reported.sentence
    assert lock in reported.sentence
    assert command in reported.sentence
    (left,) = plugin.outline(RECORD, repo).left
    assert left.sentence in reported.sentence


@pytest.mark.parametrize(
    "files",
    [
        _uv({"idna": "3.7"}, "idna==3.1"),
        _poetry({"idna": "3.7"}, 'idna = "3.1"'),
        _pipenv({"idna": "3.7"}, 'idna = "==3.1"'),
        _compiled({"idna": "3.7"}, "idna==3.1"),
        # No fix of the lock comes to what is asked for.
        _uv({"idna": "3.1"}, "idna>=3.9"),
        _poetry({"idna": "3.1"}, 'idna = ">=3.9"'),
        _pipenv({"idna": "3.1"}, 'idna = ">=3.9"'),
        _compiled({"idna": "3.1"}, "idna>=3.9"),
    ],
)
def test_a_lock_that_holds_another_version_than_is_asked_for_is_out_of_step(
    tmp_path: Path, files: Files
) -> None:
    reported = refusal(build_ecosystem(FakeClients()), RECORD, offline(tmp_path, files))
    assert reported.reason is RefusalReason.UNKNOWN
    (lock,) = files.keys() & {"uv.lock", "poetry.lock", "Pipfile.lock", "requirements.txt"}
    assert [item.path for item in reported.unread] == [lock]


@pytest.mark.parametrize(
    "files",
    [
        _uv({"idna": "3.1"}, "idna>=3.7"),
        _poetry({"idna": "3.1"}, 'idna = "^3.7"'),
        _pipenv({"idna": "3.1"}, 'idna = "==3.7"'),
        _compiled({"idna": "3.1"}, "idna>=3.7"),
    ],
)
def test_a_fix_that_comes_to_what_is_asked_for_goes_ahead(tmp_path: Path, files: Files) -> None:
    outline = build_ecosystem(FakeClients()).outline(RECORD, offline(tmp_path, files))
    assert [(move.before, move.after) for move in outline.moves] == [(("3.1",), "3.7")]
    assert not outline.left


@pytest.mark.parametrize(
    "files",
    [
        _uv(SIX, "app[extra]", "idna; python_version < '3.0'", "setuptools", "six @ https://a.b/c"),
        _uv(SIX, "other", more='[tool.uv]\nexclude-dependencies = ["other"]\n'),
        _poetry(
            SIX,
            'idna = {version = "*", python = "<3.5"}',
            'other = {version = "*", optional = true}',
        ),
        _pipenv(
            SIX, '"app" = {path = ".", editable = true}', "idna = {version = '*', markers = 'x'}"
        ),
        _compiled(SIX, "-e .", "idna ; python_version < '3.0'", "pip", "--no-index", "six"),
    ],
)
def test_what_may_be_missing_is_no_reason(tmp_path: Path, files: Files) -> None:
    reported = build_ecosystem(FakeClients()).select(RECORD, offline(tmp_path, files))
    assert isinstance(reported, NotApplicable)
    assert reported.reason is RefusalReason.NOT_AFFECTED


def test_file_that_was_not_compiled_from_the_other_is_resolved_by_itself(tmp_path: Path) -> None:
    files = {"requirements.in": "six\n", "requirements.txt": "other==1.0\n"}
    reported = build_ecosystem(FakeClients()).select(RECORD, offline(tmp_path, files))
    assert isinstance(reported, NotApplicable)
    assert reported.reason is RefusalReason.UNKNOWN
    assert [item.path for item in reported.unread] == ["requirements.in"]
    assert "requirements.txt" not in reported.sentence


def test_of_a_local_package_outside_the_workspace_no_groups_are_locked(tmp_path: Path) -> None:
    files = dict(_uv(SIX, "six", "lib"))
    files["uv.lock"] += (
        '\n[[package]]\nname = "lib"\nversion = "1"\nsource = { editable = "lib" }\n'
    )
    files["lib/pyproject.toml"] = (
        '[project]\nname = "lib"\nversion = "1"\ndependencies = ["six"]\n'
        '[project.optional-dependencies]\nx = ["idna"]\n[dependency-groups]\ndev = ["idna"]\n'
    )
    plugin = build_ecosystem(FakeClients())
    apart = refusal(plugin, RECORD, offline(tmp_path / "apart", files))
    assert apart.reason is RefusalReason.NOT_AFFECTED
    files["uv.lock"] = files["uv.lock"].replace(
        "\n\n", '\n\n[manifest]\nmembers = ["app", "lib"]\n\n', 1
    )
    member = refusal(plugin, RECORD, offline(tmp_path / "member", files))
    assert "lib/pyproject.toml requires idna, and uv.lock does not hold it" in member.sentence


@pytest.mark.parametrize("key", ["constraint", "override"])
def test_a_lock_that_was_made_under_other_rules_is_unknown(tmp_path: Path, key: str) -> None:
    files = dict(_uv(SIX, "six", more=f'[tool.uv]\n{key}-dependencies = ["six>=1,<99"]\n'))
    plugin = build_ecosystem(FakeClients())
    stale = refusal(plugin, RECORD, offline(tmp_path / "stale", files))
    assert stale.reason is RefusalReason.UNKNOWN
    assert "uv.lock was made with" in stale.sentence
    recorded = f'[manifest]\n{key}s = [{{ name = "six", specifier = "<99,>=1" }}]\n'
    files["uv.lock"] = files["uv.lock"].replace("\n\n", f"\n\n{recorded}\n", 1)
    made = refusal(plugin, RECORD, offline(tmp_path / "made", files))
    assert made.reason is RefusalReason.NOT_AFFECTED


def test_a_lock_whose_own_hash_is_of_its_manifest_is_in_step(tmp_path: Path) -> None:
    files = _poetry(SIX, 'idna = "*"')
    poetry = tomllib.loads(files["pyproject.toml"])["tool"]["poetry"]
    relevant = {key: poetry.get(key) for key in ("dependencies", "source", "extras")}
    content = json.dumps({**relevant, "dev-dependencies": None}, sort_keys=True)
    digest = hashlib.sha256(content.encode()).hexdigest()
    repo = offline(tmp_path, _poetry(SIX, 'idna = "*"', digest=digest))
    reported = refusal(build_ecosystem(FakeClients()), RECORD, repo)
    assert reported.reason is RefusalReason.NOT_AFFECTED


def test_beside_a_fix_of_another_project_it_is_said(tmp_path: Path) -> None:
    files = {f"docs/{path}": text for path, text in _uv(SIX, "brings-it-in").items()}
    repo = offline(tmp_path, {**files, "requirements.txt": "idna==3.1\n"})
    plugin = build_ecosystem(FakeClients())
    selected = plugin.select(RECORD, repo)
    assert isinstance(selected, Selected)
    result = plugin.apply(selected, RECORD, repo)
    assert [change.path for change in result.changes] == ["requirements.txt"]
    assert any("docs/uv.lock does not hold it" in note for note in result.notes)


PEP_621 = (
    'version = 1\nrequires-python = ">=3.9"\n\n[[package]]\nname = "app"\nversion = "1"\n'
    'source = {{ virtual = "." }}\n\n[package.metadata]\nrequires-dist = [{{ name = "idna", '
    'marker = "python_full_version >= \'3.9\'", specifier = "{}" }}]\n\n[[package]]\nname = "idna"\n'
    'version = "3.7"\nsource = {{ registry = "https://example.org/simple" }}\n'
)


@pytest.mark.parametrize(
    ("recorded", "asked", "reason"),
    [
        ("<4,>=3", "idna>=3,<4; python_version>='3.9'", RefusalReason.NOT_AFFECTED),
        ("<4,>=3", "idna==3.1; python_version>='3.9'", RefusalReason.UNKNOWN),
        ("<4,>=3", "idna>3.6; python_version>='3.9'", RefusalReason.NOT_AFFECTED),
    ],
)
def test_uvs_own_record_of_what_was_asked_for_is_compared(
    tmp_path: Path, recorded: str, asked: str, reason: RefusalReason
) -> None:
    """The condition may be written otherwise; a range that changed is another request."""
    files = {**_uv({}, asked), "uv.lock": PEP_621.format(recorded)}
    reported = refusal(build_ecosystem(FakeClients()), RECORD, offline(tmp_path, files))
    assert reported.reason is reason, reported


@pytest.mark.parametrize(
    "files",
    [
        {**_uv({}, "idna==3.1; sys_platform=='cli'"), "uv.lock": PEP_621.format("==3.1")},
        _poetry({"idna": "3.7"}, 'idna = [{version = "3.1", python = "<3"}, {version = "3.7"}]'),
    ],
)
def test_a_pin_that_a_marker_excludes_from_a_lock_is_affected(tmp_path: Path, files: Files) -> None:
    reported = refusal(build_ecosystem(FakeClients()), RECORD, offline(tmp_path, files))
    assert reported.reason is RefusalReason.RECIPE_UNSUPPORTED
    assert "pyproject.toml requires idna ==3.1, which" in reported.sentence
