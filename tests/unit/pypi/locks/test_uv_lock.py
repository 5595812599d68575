"""uv.lock and uv's manifests as text: what is spliced, rebuilt, added."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_plugins.pypi.locks import uv_lock
from fallback_plugins.pypi.locks.uv_lock import read_tree, spliced, stub_wheels, versioned
from fallback_plugins.pypi.resolving.uv_client import UvRefusedError, blocker_of, yanked_in
from fallback_plugins.pypi.uv import with_override
from fallback_tier.errors import RecipeError
from tests.kinds import OfKind

_HEAD = 'version = 1\nrevision = 1\nrequires-python = ">=3.9"\n'


def _block(name: str, version: str, *, detail: str = "", marker: str = "") -> str:
    condition = f', marker = "{marker}"' if marker else ""
    return (
        f'\n[[package]]\nname = "{name}"\nversion = "{version}"\n'
        'source = { registry = "index" }\n'
        f'dependencies = [\n    {{ name = "z"{condition} }},\n]\n'
        f'wheels = [\n    {{ url = "w/{name}-{version}.whl", hash = "sha256:0"{detail} }},\n]\n'
    )


def test_only_what_the_change_is_about_is_spliced_in() -> None:
    old = _HEAD + _block("a", "1") + _block("b", "1", marker="python_version < '4'")
    detail = ', size = 3, upload-time = "2026"'
    head = _HEAD.replace("revision = 1", "revision = 5")
    unchanged = head + _block("a", "1", detail=detail) + _block("b", "1", detail=detail)
    new = head + _block("a", "2", detail=detail) + _block("b", "1", detail=detail)
    assert spliced(old, unchanged, new) == old.replace("a-1.whl", "a-2.whl").replace(
        'name = "a"\nversion = "1"', 'name = "a"\nversion = "2"'
    )


def test_a_block_that_the_change_is_about_is_taken_although_its_version_stays() -> None:
    old = _HEAD + _block("a", "1") + _block("b", "1")
    new = _HEAD + _block("a", "2") + _block("b", "1", marker="python_version < '4'")
    assert "python_version" in spliced(old, old, new)


def test_a_new_head_keeps_the_old_revision() -> None:
    old, overrides = _HEAD + _block("a", "1"), '\n[manifest]\noverrides = [{ name = "a" }]\n'
    new = _HEAD.replace("revision = 1", "revision = 5") + overrides + _block("a", "2")
    result = spliced(old, old, new)
    assert "revision = 1\n" in result
    assert overrides in result


def test_splicing_a_lock_with_itself_changes_nothing() -> None:
    text = _HEAD + _block("a", "1") + _block("b", "2")
    assert spliced(text, text, text) == text


def test_a_package_without_a_wheel_is_stubbed_with_what_the_lock_says() -> None:
    text = _HEAD + (
        '\n[[package]]\nname = "only-source"\nversion = "1"\nsource = { registry = "index" }\n'
        'sdist = { url = "s/only-source-1.tar.gz", hash = "sha256:0" }\n'
        'dependencies = [{ name = "a", extra = ["x"], marker = "sys_platform == \'linux\'" }]\n'
        '[package.optional-dependencies]\nmore = [{ name = "b" }]\n'
    )
    (stem, metadata), *_ = stub_wheels("uv.lock", text + _block("a", "1")).items()
    assert stem == "only_source-1"
    assert "Requires-Dist: a[x] ; sys_platform == 'linux'\n" in metadata
    assert "Requires-Dist: b ; extra == 'more'\n" in metadata


def test_a_local_package_without_a_version_gets_one_for_uv_alone() -> None:
    text = _HEAD + '\n[[package]]\nname = "app"\nsource = { editable = "." }\n'
    assert 'name = "app"\nversion = "0"\n' in versioned(text)
    assert spliced(text, versioned(text), versioned(text)) == text


def test_the_tree_tells_roots_specifiers_and_forks() -> None:
    text = _HEAD + (
        '\n[[package]]\nname = "app"\nsource = { virtual = "." }\n'
        'dependencies = [{ name = "a", version = "2", source = { registry = "index" } }]\n'
        '[package.dev-dependencies]\ndev = [{ name = "z" }]\n'
        '[package.metadata]\nrequires-dist = [{ name = "a", specifier = ">=1" }]\n'
    )
    tree = read_tree("uv.lock", text + _block("a", "1") + _block("a", "2") + _block("z", "1"))
    (root,) = tree.roots
    assert [(ask.name, ask.spec, ask.to) for ask in root.asks] == [
        ("a", ">=1", "a 2"),
        ("z", "", "z 1"),
    ]
    assert [dependency_path[0].name for dependency_path in tree.paths_to("a 2")] == ["app"]


def test_the_manifest_is_rebuilt_with_all_that_the_lock_tells() -> None:
    text = (
        _HEAD
        + '\n[options]\nresolution-mode = "lowest"\nexclude-newer = "2026-01-01T00:00:00Z"\n'
        + '\n[manifest]\nmembers = ["app", "lib"]\nconstraints = [{ name = "z", specifier = "<9" }]\n'
        + '\n[[package]]\nname = "app"\nversion = "3"\nsource = { virtual = "." }\n'
        + '[package.metadata]\nprovides-extras = ["x"]\nrequires-dist = [\n'
        + '  { name = "a", extras = ["e"], specifier = ">=1",'
        + " marker = \"os_name == 'nt' and extra == 'x'\" },\n"
        + '  { name = "lib", editable = "packages/lib" },\n]\n'
        + '[package.metadata.requires-dev]\ndev = [{ name = "b" }]\n'
        + '\n[[package]]\nname = "lib"\nversion = "1"\nsource = { editable = "packages/lib" }\n'
    )
    paths = uv_lock.manifest_paths("uv.lock", text)
    assert sorted(paths) == ["packages/lib/pyproject.toml", "pyproject.toml"]
    document = tomllib.loads(uv_lock.rebuilt("uv.lock", text, paths["pyproject.toml"]))
    assert document["project"] == {
        "name": "app",
        "version": "3",
        "requires-python": ">=3.9",
        "dependencies": ["lib"],
        "optional-dependencies": {"x": ["a[e]>=1 ; os_name == 'nt'"]},
    }
    assert document["dependency-groups"] == {"dev": ["b"]}
    assert document["tool"]["uv"] == {
        "sources": {"lib": {"workspace": True}},
        "package": False,
        "constraint-dependencies": ["z<9"],
        "resolution": "lowest",
        "exclude-newer": "2026-01-01T00:00:00Z",
        "workspace": {"members": ["packages/lib"]},
    }


def test_a_lock_of_something_outside_the_repository_is_refused() -> None:
    text = _HEAD + '\n[[package]]\nname = "far"\nversion = "1"\nsource = { editable = "../far" }\n'
    with pytest.raises(RecipeError, check=OfKind("outside")):
        uv_lock.manifest_paths("uv.lock", text)


_TABLES = st.sampled_from(
    [
        "",
        "[tool.uv]\n",
        "[tool.uv]",
        "[tool.uv] # ours\npackage = false",
        "[tool.uv]\r\noverride-dependencies = []\r\n",
        '[tool.uv]\noverride-dependencies = ["b<9"] # kept\n',
        '[tool.uv]\noverride-dependencies = [\n    # why\n    "b<9",\n]\n',
        '[tool.other]\noverride-dependencies = ["c"]\n[tool.uv]\npackage = true\n',
        '[tool.uv.sources]\na = { path = "a" }\n',
    ]
)


@given(
    st.sampled_from(["", "\ufeff"]),
    st.sampled_from(["", '[project]\nname = "app" # the name\n']),
    _TABLES,
    st.sampled_from(["", "# end\n", "# end", '[tool.x]\ny = "[tool.uv]"\n']),
)
def test_an_override_is_added_and_every_other_byte_stays(
    mark: str, project: str, table: str, after: str
) -> None:
    gap = "" if table.endswith("\n") or not table else "\n"
    text = f"{project}{table}{gap}{after}"
    new = with_override("pyproject.toml", mark + text, "leaf>=1.2")
    assert new.startswith(mark)
    before = tomllib.loads(text).get("tool", {}).get("uv", {}).get("override-dependencies", [])
    reported = tomllib.loads(new.removeprefix(mark))["tool"]["uv"]["override-dependencies"]
    assert reported == ["leaf>=1.2", *before]
    rest = iter(new)
    assert all(char in rest for char in mark + text), "the old text is a subsequence of the new"
    assert new.endswith("\n") == (text == "" or text.endswith("\n"))


def test_an_inline_table_leaves_no_place_for_an_override() -> None:
    with pytest.raises(RecipeError, check=OfKind("no_plain_table")):
        with_override("pyproject.toml", "[tool]\nuv = { package = false }\n", "leaf>=1.2")


def test_uvs_words_name_the_parent_and_its_constraint() -> None:
    message = "Because p==1.0 depends on leaf>=1.0,\n<1.2 and your project depends on leaf==1.2, we"
    error = UvRefusedError("no", message.replace(",\n", ","))
    assert blocker_of(error, "leaf") == ("p", ">=1.0,<1.2")
    assert blocker_of(error, "other") is None


@pytest.mark.parametrize(
    ("output", "blamed"),
    [
        ("Because p{os_name != 'nt'}==1.0 depends on leaf<2 and", ("p", "<2")),
        ("Because p==1.0 depends on leaf{os_name != 'nt'}<2, we", ("p", "<2")),
        ("Because p{os_name != 'q depends on leaf<1'}==1.0 is absent", None),
        ("Because all versions of p[x] depend on leaf[y]>=3.", ("p", ">=3")),
        ("Because project depends on leaf<2", None),
    ],
)
def test_whom_uv_blames_is_read_without_conditions(
    output: str, blamed: tuple[str, str] | None
) -> None:
    assert blocker_of(UvRefusedError("no", output), "leaf") == blamed


def test_uvs_warnings_name_what_is_yanked() -> None:
    assert yanked_in('warning: `A.b[x]==1.2` is yanked (reason: "bad")\n') == {("a-b", "1.2")}
