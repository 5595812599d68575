"""What a target's files may not do to the machine that reads them, and what they may not break."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.pypi import build_ecosystem
from fallback_plugins.pypi.locks.uv_lock import spliced
from fallback_plugins.pypi.manifests import requirements
from fallback_plugins.pypi.manifests.indexes import has_own_index, index_variables, leading_out
from fallback_plugins.pypi.manifests.pyproject import replace_requirements
from fallback_plugins.pypi.manifests.requirements import (
    apply_edits,
    clean,
    declaration_in,
    edits_for,
    requirement_in,
)
from fallback_plugins.pypi.resolving.registry import PackageIndex
from fallback_plugins.pypi.resolving.uv_client import UvClient, Wanted, uv_lock
from fallback_tier.advisory import bundle
from fallback_tier.errors import RecipeError
from fallback_tier.execution import CommandResult
from fallback_tier.sandbox.clients import SubprocessClients
from tests.kinds import OfKind
from tests.registry import Universe, serve
from tests.unit.pypi.pypi_files import offline, pyproject
from tests.unit.shared.locks_support import poetry_block, poetry_lock
from tests.unit.shared.recipes import FakeClients, advisory, after, fix, refusal, repository

LEAF = advisory("PyPI", "leaf", [("0", "2.0")])

#: Gives a scratch project a build of its own, where it is written between quotes.
_BUILD = '3.9"\ndynamic = ["dependencies"]\n[build-system]\nrequires = ["x @ http://x/x.whl"]\n[y]\nz = "'


def _pipfile_lock(python: str, **entries: object) -> str:
    meta = {"hash": {"sha256": "0"}, "requires": {"python_version": python}, "sources": []}
    default = {"leaf": {"hashes": [], "version": "==1.0"}, **entries}
    return json.dumps({"_meta": meta, "default": default, "develop": {}}, indent=4) + "\n"


def _uv_lock(name: str, version: str = "1.0") -> str:
    registry = 'source = { registry = "https://example.org/simple" }\n'
    return (
        'version = 1\n\n[[package]]\nname = "leaf"\nversion = "1.0"\n'
        f'{registry}\n[[package]]\nname = "{name}"\nversion = "{version}"\n{registry}'
        'sdist = { url = "https://example.org/x.tar.gz", hash = "sha256:00" }\n'
    )


def _poetry_lock(name: str) -> str:
    universe = Universe().pypi("leaf", "1.0").pypi("parent", "1.0")
    sections = '[package.dependencies]\nleaf = "<2"\n'
    block = poetry_block(universe, "leaf", "1.0")
    return poetry_lock(block, poetry_block(universe, "parent", "1.0", sections=sections)).replace(
        '"parent"', f'"{name}"'
    )


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("Pipfile.lock", _pipfile_lock(_BUILD)),
        ("Pipfile.lock", _pipfile_lock("3.9", x={"version": " @ git+http://x/x"})),
        ("Pipfile.lock", _pipfile_lock("3.9", **{"x @ http://x/x.whl#": {"version": "==1"}})),
        ("Pipfile.lock", _pipfile_lock("3.9", x={"version": "==1", "extras": ["a] @ http://x"]})),
        ("uv.lock", _uv_lock("../../elsewhere")),
        ("uv.lock", _uv_lock("/tmp/elsewhere")),
        ("uv.lock", _uv_lock("x", "1.0/../../elsewhere")),
        ("poetry.lock", _poetry_lock("x@git+http://localhost/x#")),
        ("poetry.lock", _poetry_lock("--index-url=http://x")),
    ],
)
def test_a_locks_names_and_versions_are_names_and_versions(
    tmp_path: Path, path: str, text: str
) -> None:
    plugin = build_ecosystem(FakeClients())
    reported = refusal(plugin, LEAF, repository(tmp_path, {path: text}))
    assert reported.reason is RefusalReason.RECIPE_UNSUPPORTED
    assert path in reported.sentence


@pytest.mark.parametrize(
    "line", ["x @ http://x/x.whl", "x @ git+http://x/x", "-r /etc/hostname", "x\n-r /etc/hostname"]
)
def test_uv_is_told_requirements_only(line: str) -> None:
    clients = FakeClients()
    with pytest.raises(RecipeError, check=OfKind("not_a_requirement", "address")):
        PackageIndex(clients).resolved([line], "3.9")
    with pytest.raises(RecipeError, check=OfKind("not_a_requirement", "address")):
        UvClient(clients).lock(Wanted(("x",), (line,)))


def test_a_scratch_manifest_takes_no_table_for_a_python() -> None:
    with pytest.raises(RecipeError, check=OfKind("not_a_python")):
        PackageIndex(FakeClients()).resolved(["x"], _BUILD)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ('[dependency-groups]\nd = ["x @ http://x/${HOME}/x.whl"]', "variable"),
        ('[dependency-groups]\nd = ["x @ git+http://x/x"]', "checkout"),
        ('[dependency-groups]\nd = ["x @ file:///opt/x"]', "outside the repository"),
        ('[tool.uv]\nconstraint-dependencies = ["x @ ../x"]', "outside the repository"),
        ('[[tool.uv.dependency-metadata]]\nname = "x"\nrequires-dist = ["y @ ${A}"]', "variable"),
        ('[tool.uv.sources]\nx = { url = "file:///opt/x.whl" }', "outside the repository"),
        ('[tool.uv.sources]\nx = [{ path = "/opt/x", editable = true }]', "outside"),
        ('[[tool.uv.index]]\nurl = "file:///opt/wheels"\nformat = "flat"', "an index outside"),
        ('[tool.uv]\nextra-index-url = ["../wheels"]', "an index outside"),
    ],
)
def test_what_leads_uv_out_of_the_repository(more: str, message: str) -> None:
    (found,) = leading_out("pyproject.toml", pyproject("leaf", more=more))
    assert message in found


def test_what_stays_inside_does_not() -> None:
    more = (
        '[tool.uv.sources]\nx = { path = "../x" }\n[tool.uv.workspace]\nmembers = ["libs/*"]\n'
        '[[tool.uv.index]]\nurl = "https://example.org/simple"\n'
    )
    text = pyproject("leaf>=1 ; python_version > '3'", "y @ https://example.org/y.whl", more=more)
    assert not list(leading_out("app/pyproject.toml", text))


class _Watched(SubprocessClients):
    """Remembers what a client was told."""

    env: Mapping[str, str] = {}

    def run(
        self,
        tool: str,
        args: Sequence[str],
        *,
        cwd: Path,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
    ) -> CommandResult:
        self.env = self._environment(tool) | dict(env or {})
        return super().run(tool, args, cwd=cwd, timeout_s=timeout_s, env=env)


def test_no_credential_goes_to_an_index_that_the_target_names() -> None:
    with serve(Universe().pypi("leaf", "1.0")) as registry:
        more = f'[[tool.uv.index]]\nname = "Corp.x"\nurl = "{registry.pypi_url}"\n'
        secret = {"UV_INDEX_CORP_X_USERNAME": "me", "UV_INDEX_CORP_X_PASSWORD": "secret"}
        clients = _Watched({**os.environ, **registry.environ, **secret})
        files = {"pyproject.toml": pyproject("leaf", more=more)}
        assert 'name = "leaf"' in uv_lock(clients, files, "uv.lock").text
    assert clients.env["UV_INDEX_CORP_X_PASSWORD"] == ""
    assert index_variables(files).keys() == secret.keys()


def test_hashes_of_another_registry_are_not_written(tmp_path: Path) -> None:
    text = "--index-url https://example.org/simple\nleaf==1.0 --hash=sha256:00\n"
    repo = repository(tmp_path, {"requirements.txt": text})
    with pytest.raises(RecipeError, match=r"requirements\.txt"):
        fix(build_ecosystem(FakeClients()), LEAF, repo)


def test_a_marker_that_nests_deeper_than_its_reader_goes() -> None:
    line = f"leaf ; {'(' * 3_000}os_name == 'a'{')' * 3_000}"
    with pytest.raises(RecipeError, check=OfKind("not_resolved")):
        clean("requirements.txt", line)
    assert requirement_in(line) is None


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("pyproject.toml", '[[tool.uv.index]]\nurl = "https://example.org"\n'),
        ("pyproject.toml", "[tool.uv.sources]\nleaf = { workspace = true }\n"),
        ("pyproject.toml", '[[tool.poetry.source]]\nname = "corp"\n'),
        ("Pipfile", '[[source]]\nname = "a"\n[[source]]\nname = "b"\n'),
    ],
)
def test_manifests_that_name_their_own_registry(path: str, text: str) -> None:
    assert has_own_index(path, text)


@pytest.mark.parametrize(
    ("old", "version", "new"),
    [
        ("leaf~=1!2.0", "1!3.1.2", "leaf~=1!3.1,>=1!3.1.2"),
        ("leaf>=1!2.0,<1!3", "1!3.1", "leaf>=1!3.1,<1!4"),
        ("leaf==1!2.*", "1!3.0", "leaf==1!3.*"),
        ("leaf~=1.4", "2.0.1+local", "leaf~=2.0,>=2.0.1"),
        # No wording in this style admits it: refused, not broken.
        ("leaf~=0.1", "9.11.0.dev2", None),
    ],
)
def test_a_raised_declaration_admits_the_version(old: str, version: str, new: str | None) -> None:
    declaration = declaration_in(old, "leaf")
    assert declaration
    edits = edits_for(declaration, version)
    assert (edits and apply_edits(old, edits)) == new


def test_many_bumps_read_a_file_once(tmp_path: Path) -> None:
    names = [f"p{number}" for number in range(40)]
    records = [
        advisory("PyPI", name, [("0", "2.0")]).model_copy(update={"id": name}) for name in names
    ]
    files = {"requirements.txt": "".join(f"{name}==1.0\n" for name in names)}
    repo = offline(tmp_path, files)
    requirements._lines_by_name.cache_clear()
    result = fix(build_ecosystem(FakeClients()), bundle(records), repo)
    assert after(result, "requirements.txt") == files["requirements.txt"].replace("1.0", "2.0")
    # Once as it is, and once as it is raised.
    assert requirements._lines_by_name.cache_info().misses == 2


def test_many_strings_are_replaced_as_one_by_one() -> None:
    text = '# "b==1"\ndependencies = ["a==1", "b==1", \'c==1\', "c==1"]\n'
    keys: list[tuple[str | int, ...]] = [("dependencies", index) for index in range(4)]
    new = dict(zip(keys, ["a==2", "b==2", "c==2", "c==3"], strict=True))
    wanted = '# "b==1"\ndependencies = ["a==2", "b==2", \'c==2\', "c==3"]\n'
    assert replace_requirements("x.toml", text, new) == wanted


def test_line_ends_of_a_lock_stay() -> None:
    old = _uv_lock("other")
    new = old.replace('name = "leaf"\nversion = "1.0"', 'name = "leaf"\nversion = "2.0"')
    windows = spliced(old.replace("\n", "\r\n"), old, new)
    assert windows == spliced(old, old, new).replace("\n", "\r\n")
    assert 'version = "2.0"' in windows


def test_a_users_wish_for_bytecode_stops_no_fix() -> None:
    """uv rejects --no-compile-bytecode beside the variable: no wheel's metadata could be had."""
    with serve(Universe().pypi("leaf", "1.0", ["x>=1"])) as registry:
        environ = {**os.environ, **registry.environ, "UV_COMPILE_BYTECODE": "1"}
        _, metadata = PackageIndex(SubprocessClients(environ)).release("leaf", "1.0", "3.9")
    assert [str(it) for it in metadata.requirements] == ["x>=1"]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_poetry_lock_keeps_its_line_ends(tmp_path: Path, ending: str) -> None:
    universe = Universe().pypi("leaf", "1.0").pypi("leaf", "2.0")
    files = {"poetry.lock": poetry_lock(poetry_block(universe, "leaf", "1.0"))}
    with serve(universe) as registry:
        plugin = build_ecosystem(SubprocessClients({**os.environ, **registry.environ}))
        old = {path: text.replace("\n", ending) for path, text in files.items()}
        new = after(fix(plugin, LEAF, repository(tmp_path, old)), "poetry.lock")
    wanted = poetry_lock(poetry_block(universe, "leaf", "2.0"))
    assert new == wanted.replace("\n", ending)


def test_an_unreadable_lock_is_left_by_name(tmp_path: Path) -> None:
    repo = repository(tmp_path, {"uv.lock": "", "pyproject.toml": pyproject("leaf>=1.0")})
    (tmp_path / "uv.lock").write_bytes(b"\xff\xfe")
    (left,) = build_ecosystem(FakeClients()).outline(LEAF, repo).left
    assert left.manifest == "uv.lock"
