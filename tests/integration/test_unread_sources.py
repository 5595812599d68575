"""Sources that a Python client installs from and that no reader here follows: never "not affected", and
never "versions proved". Real commands, real uv, a registry on loopback with ``left`` 1.0.0 (affected) and
2.0.0.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from fallback_tier.cli import exit_codes
from tests.e2e.command import Ended, osv, run
from tests.fakes.repository import git
from tests.registry import Universe, serve

UNIVERSE = Universe()
for version in ("1.0.0", "2.0.0"):
    UNIVERSE.pypi("left", version)
UNIVERSE.pypi("asks", "1.0.0", ["left"]).pypi("right", "1.0.0")

WHEEL = "left-1.0.0-py3-none-any.whl"
ARCHIVE = UNIVERSE.pypi_packages["left"][WHEEL].content
NEWER = "left-2.0.0-py3-none-any.whl"

PROJECT = '[project]\nname = "app"\nversion = "1"\nrequires-python = ">=3.9"\n'
BARE = "left\n"

Files = Mapping[str, str | bytes]


@pytest.fixture(scope="module")
def registry() -> Iterator[Mapping[str, str]]:
    with serve(UNIVERSE) as served:
        yield served.environ


def make(place: Path, files: Files) -> Path:
    repo = place / "repo"
    for path, content in files.items():
        (repo / path).parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str) and content.startswith("-> "):
            (repo / path).symlink_to(content.removeprefix("-> "))
        else:
            (repo / path).write_bytes(content.encode() if isinstance(content, str) else content)
    git(repo, "init", "-q", "-b", "main")
    git(repo, "add", "-A", "-f")
    git(repo, "commit", "-q", "-m", "base")
    (place / "A.json").write_text(osv("left", id="A"))
    return repo


def command(name: str, place: Path, registry: Mapping[str, str], *more: str) -> Ended:
    words = [name, place / "repo", "--advisory", place / "A.json", "--json", *more]
    return run(*words, "--state-dir", place / "state", env=registry)


def vendored(*names: str) -> Files:
    return {f"wheels/{name}": UNIVERSE.pypi_packages["left"][name].content for name in names}


def taken_from(table: str) -> Files:
    """uv takes a bare ``left`` from elsewhere."""
    return {
        "pyproject.toml": f'{PROJECT}dependencies = ["left"]\n[tool.uv.sources]\nleft = {table}\n',
        **vendored(WHEEL),
    }


def dynamic(of: str, value: str) -> Files:
    metadata = PROJECT.replace('version = "1"', f'version = "1"\ndynamic = ["{of}"]')
    return {
        "pyproject.toml": f"{metadata}[tool.setuptools.dynamic]\n{value}\n",
        "deps.list": "left==1.0.0\n",
    }


def tool(path: str, text: str, **more: str | bytes) -> Files:
    """Beside requirements that don't name the package."""
    return {"requirements.txt": "right==1.0.0\n", path: text, **more}


#: What a client installs from a file of another name is read, and raised there.
READ: Mapping[str, tuple[Files, str]] = {
    "-c cons.txt": (
        {"requirements.txt": "-c cons.txt\nleft\n", "cons.txt": "left==1.0.0\n"},
        "cons.txt",
    ),
    "-c below, any name": (
        {"requirements.txt": "left\n-c limits.list\n", "limits.list": "left==1.0.0\n"},
        "limits.list",
    ),
    "a constraint on what comes along": (
        {"requirements.txt": "-ccons\nasks\n", "cons": "left==1.0.0\n"},
        "cons",
    ),
    "a cap": ({"requirements.txt": "-c cons.txt\nleft\n", "cons.txt": "left<2\n"}, "cons.txt"),
    "a wildcard": ({"requirements.txt": "left==1.0.*\n"}, "requirements.txt"),
    "--requirement=": (
        {"requirements.txt": "--requirement=base.pip\n", "base.pip": "left==1.0.0\n"},
        "base.pip",
    ),
    "a quoted name": (
        {"requirements.txt": "-r 'my base.txt'\n", "my base.txt": "left==1.0.0\n"},
        "my base.txt",
    ),
    "a continued line": (
        {"requirements.txt": "-r \\\n  base.txt\n", "base.txt": "left==1.0.0\n"},
        "base.txt",
    ),
    "after another option": (
        {"requirements.txt": "--pre -r base.txt\n", "base.txt": "left==1.0.0\n"},
        "base.txt",
    ),
    "a cycle": (
        {
            "requirements.txt": "-r a/b.lst\n",
            "a/b.lst": "-r c.lst\n",
            "a/c.lst": "-r b.lst\nleft==1.0.0\n",
        },
        "a/c.lst",
    ),
    "40 deep": (
        {
            "requirements.txt": "-r d0.x\n",
            **{f"d{number}.x": f"-r d{number + 1}.x\n" for number in range(40)},
            "d40.x": "left==1.0.0\n",
        },
        "d40.x",
    ),
    "dynamic dependencies": (
        dynamic("dependencies", 'dependencies = {file = "deps.list"}'),
        "deps.list",
    ),
    "a dynamic extra": (
        dynamic("optional-dependencies", 'optional-dependencies.test = {file = ["deps.list"]}'),
        "deps.list",
    ),
    "setup.cfg, file:": (
        {
            "setup.cfg": "[metadata]\nname = app\n[options]\ninstall_requires = file: deps.list\n",
            "deps.list": "left==1.0.0\n",
        },
        "deps.list",
    ),
}

#: What can't be read, or is not known to be installed, is named in a refusal.
NAMED: Mapping[str, tuple[Files, str]] = {
    "a missing constraint": ({"requirements.txt": "-c gone.txt\nleft\n"}, "'gone.txt'"),
    "a constraint by address": (
        {"requirements.txt": "-c https://127.0.0.1:9/c.txt\nleft\n"},
        "'https://127.0.0.1:9/c.txt'",
    ),
    "outside": ({"requirements.txt": "-r ../gone.txt\nright\n"}, "'../gone.txt'"),
    "a variable": ({"requirements.txt": "-r ${HERE}/base.txt\nright\n"}, "'${HERE}/base.txt'"),
    "a link": (
        {"requirements.txt": "-r l.txt\n", "l.txt": "-> deps.list", "deps.list": "left==1.0.0\n"},
        "'l.txt'",
    ),
    "UTF-16": (
        {"requirements.txt": "-r dev.txt\n", "dev.txt": "left==1.0.0\n".encode("utf-16")},
        "'dev.txt'",
    ),
    "17 MB": (
        {"requirements.txt": "-r dev.txt\n", "dev.txt": b"#" * 17_000_000 + b"\nleft==1.0.0\n"},
        "'dev.txt'",
    ),
    "a NUL byte": (tool("requirements-dev.txt", "ri\0ght==1.0.0\n"), "'requirements-dev.txt'"),
    "Latin-1": (
        {"requirements.txt": b"right==1.0.0\n", "requirements-dev.txt": b"# caf\xe9\nright\n"},
        "'requirements-dev.txt'",
    ),
    "a wheel": (
        {"requirements.txt": f"./wheels/{WHEEL}\n", **vendored(WHEEL)},
        "asks for left 1.0.0",
    ),
    "a wheel without a folder": ({"requirements.txt": f"{WHEEL}\n"}, "asks for left 1.0.0"),
    "a wheel's address": (
        {"requirements.txt": f"https://127.0.0.1:9/{WHEEL}\n"},
        "asks for left 1.0.0",
    ),
    "a named wheel": ({"requirements.txt": f"left @ file:wheels/{WHEEL}\n"}, "asks for left 1.0.0"),
    "git": (
        {"requirements.txt": "git+https://127.0.0.1/x/left.git@v1.0.0\n"},
        "asks for left, but",
    ),
    "a folder": ({"requirements.txt": "-e ./vendor/left\n"}, "asks for left, but"),
    "a folder's dependency": (
        {
            "requirements.txt": "-e ./vendor/lib\n",
            "vendor/lib/pyproject.toml": f'{PROJECT}dependencies = ["left==1.0.0"]\n',
        },
        "vendor/lib/pyproject.toml names left==1.0.0",
    ),
    "uv, a wheel": (taken_from(f'{{ path = "wheels/{WHEEL}" }}'), "[tool.uv.sources]"),
    "uv, git": (taken_from('{ git = "https://127.0.0.1/x" }'), "[tool.uv.sources]"),
    "uv, of the workspace": (
        {
            "pyproject.toml": f'{PROJECT}[tool.uv.workspace]\nmembers = ["m"]\n'
            f'[tool.uv.sources]\nleft = {{ path = "wheels/{WHEEL}" }}\n',
            "m/pyproject.toml": f'{PROJECT.replace("app", "m")}dependencies = ["left"]\n',
        },
        "[tool.uv.sources]",
    ),
    "Poetry, a wheel": (
        {"pyproject.toml": f'[tool.poetry.dependencies]\nleft = {{ path = "w/{WHEEL}" }}\n'},
        "asks for left 1.0.0",
    ),
    "setup.py, an address": (
        {
            "setup.py": f"setup(name='app', install_requires=['left @ https://127.0.0.1:9/{WHEEL}'])\n"
        },
        "setup.py asks for left",
    ),
    "setup.py, a file": (
        {
            "setup.py": "setup(name='app', install_requires=open('deps.x-1'))\n",
            "deps.x-1": "left==1.0.0\n",
        },
        "deps.x-1 names left==1.0.0",
    ),
    "--find-links": (
        {
            "requirements.txt": "--no-index\n--find-links vendor/wheels\nleft\n",
            f"vendor/wheels/{WHEEL}": ARCHIVE,
        },
        f"vendor/wheels/{WHEEL} names left 1.0.0",
    ),
    "uv.lock, a vendored folder": (
        {
            "pyproject.toml": PROJECT,
            "uv.lock": 'version = 1\n[[package]]\nname = "left"\nversion = "1.0.0"\n'
            'source = { directory = "vendor/left" }\n',
        },
        "uv.lock names left 1.0.0",
    ),
    "a script": (
        tool("tool.py", '# /// script\n# dependencies = [\n#   "left==1.0.0",\n# ]\n# ///\n'),
        "tool.py names left==1.0.0",
    ),
    "a build": (
        {"pyproject.toml": f'[build-system]\nrequires = ["left==1.0.0"]\n{PROJECT}'},
        "in build-system.requires",
    ),
    "pdm": (
        {"pyproject.toml": f'{PROJECT}[tool.pdm.dev-dependencies]\nx = ["left==1.0.0"]\n'},
        "in tool.pdm.dev-dependencies.x",
    ),
    "pdm, overridden": (
        {"pyproject.toml": f'{PROJECT}[tool.pdm.resolution.overrides]\nleft = "1.0.0"\n'},
        "in tool.pdm.resolution.overrides.left",
    ),
    "hatch": (
        {"pyproject.toml": f'{PROJECT}[tool.hatch.envs.x]\ndependencies = ["left==1.0.0"]\n'},
        "in tool.hatch.envs.x.dependencies",
    ),
    "uv.toml": (tool("uv.toml", 'constraint-dependencies = ["left<2"]\n'), "uv.toml names left<2"),
    "conda, pip": (
        tool("environment.yml", "dependencies:\n  - pip:\n    - left==1.0.0\n"),
        "environment.yml names left==1.0.0",
    ),
    "conda": (
        tool("environment.yml", "dependencies:\n  - left=1.0.0=py_0\n"),
        "environment.yml names left=1.0.0",
    ),
    "tox": (tool("tox.ini", "[testenv]\ndeps = left==1.0.0\n"), "tox.ini names left==1.0.0"),
    "tox, PIP_CONSTRAINT": (
        {
            "requirements.txt": "left\n",
            "tox.ini": "[testenv]\nsetenv = PIP_CONSTRAINT = {toxinidir}/c.limit\n",
            "c.limit": "left==1.0.0\n",
        },
        "c.limit names left==1.0.0",
    ),
    "nox": (tool("noxfile.py", 'session.install("left==1.0.0")\n'), "noxfile.py names left==1.0.0"),
    "make": (
        {
            "requirements.txt": "left\n",
            "Makefile": "x:\n\tpip install -c d/x.l -r requirements.txt\n",
        }
        | {"d/x.l": "left==1.0.0\n"},
        "d/x.l names left==1.0.0",
    ),
    "an image's constraint": (
        {
            "requirements.txt": "left\n",
            "Dockerfile": "FROM x\nCOPY deploy /app\nENV PIP_CONSTRAINT=/app/c.limit\n",
            "deploy/c.limit": "left==1.0.0\n",
        },
        "deploy/c.limit names left==1.0.0",
    ),
    "tox in pyproject.toml": (
        {
            "pyproject.toml": f'{PROJECT}[tool.tox]\nlegacy_tox_ini = """\ndeps =\n  left==1.0.0\n"""\n'
        },
        "in tool.tox.legacy_tox_ini",
    ),
    "a task": (
        {"pyproject.toml": f'{PROJECT}[tool.poe.tasks]\nx = "pip install left==1.0.0"\n'},
        "in tool.poe.tasks.x",
    ),
    "an image": (
        tool("Dockerfile", "FROM x\nRUN pip install \\\n  'left == 1.0.0'\n"),
        "Dockerfile names left == 1.0.0",
    ),
    "CI": (
        tool(".github/workflows/a.yml", "run: pip install left~=1.0.0\n"),
        "a.yml names left~=1.0.0",
    ),
    "compiled elsewhere": (
        {"requirements.in": "left\n", "prod.txt": "# autogenerated by pip-compile\nleft==1.0.0\n"},
        "prod.txt names left==1.0.0",
    ),
    "another folder": (
        tool("deploy/base.txt", "left==1.0.0\n"),
        "deploy/base.txt names left==1.0.0",
    ),
    "requirements.lock": (
        tool("requirements.lock", "left==1.0.0\n"),
        "requirements.lock names left==1.0.0",
    ),
    "a script's lock": (
        tool("t.py.lock", 'version = 1\n[[package]]\nname = "left"\nversion = "1.0.0"\n'),
        "t.py.lock names left",
    ),
    "a lock by addresses": (
        tool("pixi.lock", f"- pypi: https://127.0.0.1:9/{WHEEL}\n"),
        f"pixi.lock names https://127.0.0.1:9/{WHEEL}",
    ),
}

#: What names no affected version stops nothing.
CLEAN: Mapping[str, Files] = {
    "a fixed constraint": {"requirements.txt": "-c cons.txt\nleft\n", "cons.txt": "left==2.0.0\n"},
    "an include of something else": {
        "requirements.txt": "-r base.txt\n",
        "base.txt": "right==1.0.0\n",
    },
    "an include of what brings it in": {"requirements.txt": "-r base.txt\n", "base.txt": "asks\n"},
    "a fixed wheel": {"requirements.txt": f"./wheels/{NEWER}\n", **vendored(NEWER)},
    "a build's floor": {"pyproject.toml": f'[build-system]\nrequires = ["left>=1.0.0"]\n{PROJECT}'},
    "words": {
        "requirements.txt": "left==2.0.0\n",
        "tox.ini": "[testenv]\ndeps =\n    left\n    left-pad==1.0.0\n    # left==1.0.0\n",
        "Makefile": "x:\n\tpip install 'left>=1' my-left==1.0.0\n",
        "README.md": "left==1.0.0\n",
        "CHANGES.txt": "left==1.0.0\n",
        "docs/x.txt": "left==1.0.0\n",
        "tests/data/requirements.cfg": "left==1.0.0\n",
        "app.py": 'NEEDS = "left==1.0.0"\n',
        f"tests/data/{WHEEL}": ARCHIVE,
    },
    "a broken file of tests": {
        "requirements.txt": "left==2.0.0\n",
        "tests/data/requirements.txt": "right\0\n",
        "docs/requirements.txt": "-r gone.txt\n",
    },
}


@pytest.mark.parametrize("case", READ)
def test_a_file_is_read_by_its_reference(
    tmp_path: Path, registry: Mapping[str, str], case: str
) -> None:
    files, path = READ[case]
    make(tmp_path, files)
    ended = command("plan", tmp_path, registry)
    assert ended.code == exit_codes.OK, ended
    (fix,) = ended.json["fixes"]
    assert [(it["manifest"], it["after"]) for it in fix["moves"]] == [(path, "2.0.0")]


@pytest.mark.parametrize("case", NAMED)
def test_what_is_not_read_is_unknown_and_named(
    tmp_path: Path, registry: Mapping[str, str], case: str
) -> None:
    files, words = NAMED[case]
    make(tmp_path, files)
    ended = command("plan", tmp_path, registry)
    (left,) = ended.json["left"]
    assert words in left["sentence"]
    # A declaration that is read, and takes the package from a place of any version, is refused as before.
    unknown = left["reason"] == "unknown"
    assert ended.code == (exit_codes.UNKNOWN if unknown else exit_codes.REFUSED), ended
    assert left["unread"] == ended.json["unread"]
    assert bool(left["unread"]) is unknown
    assert all(item["reason"] and item["next_step"] for item in left["unread"])


@pytest.mark.parametrize("case", CLEAN)
def test_what_names_no_affected_version_stops_nothing(
    tmp_path: Path, registry: Mapping[str, str], case: str
) -> None:
    make(tmp_path, CLEAN[case])
    ended = command("plan", tmp_path, registry)
    assert ended.code == exit_codes.NOT_AFFECTED, ended


# --- what is proved -------------------------------------------------------------------------------

ADMITTING = (
    f'{PROJECT}dependencies = ["left>=2"]\n[tool.uv.sources]\nleft = {{ path = "{NEWER}" }}\n'
)

#: Files beside ``a/requirements.txt``, which is raised; the level of proof, or None, and what says it.
PROVED: Mapping[str, tuple[Files, str | None, str]] = {
    "alone": ({}, "resolved_tree", "resolved tree: left 2.0.0"),
    "another project, installed as well": (
        {"b/requirements.txt": "left==2.0.0\n"},
        "resolved_tree",
        "resolved tree: left 2.0.0",
    ),
    "another file of the project": (
        {"a/requirements-prod.txt": "left==2.0.0\n"},
        "resolved_tree",
        "resolved tree: left 2.0.0",
    ),
    "another project that can't be installed": (
        {"b/requirements.txt": "left\nnowhere==9\n"},
        "pins",
        "pins: left 2.0.0",
    ),
    "another file that can't be installed": (
        {"a/requirements-prod.txt": "left==2.0.0\nnowhere==9\n"},
        "pins",
        "pins: left 2.0.0",
    ),
    "another project with what can't be read": (
        {"b/requirements.txt": "left\n-c ${HERE}/c.txt\n"},
        "pins",
        "pins: left 2.0.0",
    ),
    "another project with sources of its own": (
        {"b/pyproject.toml": ADMITTING},
        "pins",
        "pins: left 2",
    ),
    "a file that can't be read": (
        {"a/requirements-dev.txt": b"-r requirements.txt\n\0\n"},
        "pins",
        "a/requirements-dev.txt",
    ),
    "an environment of tox that pins it": (
        {"tox.ini": "[testenv:oldest]\ndeps = left==1.0.0\n"},
        "resolved_tree",
        "resolved tree: left 2.0.0",
    ),
    "tox and another table that pin it": (
        {
            "pyproject.toml": '[tool.tox.env.oldest]\ndeps = ["left==1.0.0"]\n'
            '[tool.pdm.dev-dependencies]\ntest = ["left==1.0.0"]\n'
        },
        None,
        "pyproject.toml names left==1.0.0 in tool.pdm",
    ),
    "a script that pins it": (
        {"tool.py": '# /// script\n# dependencies = ["left==1.0.0"]\n# ///\n'},
        None,
        "tool.py names left==1.0.0",
    ),
    "a wheel in a folder": (vendored(WHEEL), None, f"wheels/{WHEEL} names left 1.0.0"),
}


@pytest.mark.sandbox
@pytest.mark.parametrize("case", PROVED)
def test_a_tree_is_proved_if_every_project_was_installed(
    tmp_path: Path, registry: Mapping[str, str], case: str
) -> None:
    files, level, words = PROVED[case]
    make(tmp_path, {"a/requirements.txt": "left==1.0.0\n", **files})
    ended = command("fix", tmp_path, registry, "--dry-run")
    (verdict,) = (it for it in ended.json["verdicts"] if it["gate"] == "not_vulnerable")
    assert words in verdict["detail"]
    if level is None:
        assert (ended.code, verdict["status"]) == (exit_codes.ESCALATED, "skipped")
    else:
        assert (ended.code, ended.json["proof_level"]) == (exit_codes.OK, level)


@pytest.mark.sandbox
def test_lines_of_our_own_prove_no_tree_that_uv_takes_from_elsewhere(
    tmp_path: Path, registry: Mapping[str, str]
) -> None:
    """uv can't find the wheel of another package here; the step that serves leaves the table out."""
    source = '[tool.uv.sources]\nright = { path = "w/right-1.0.0-py3-none-any.whl" }\n'
    make(
        tmp_path, {"pyproject.toml": f'{PROJECT}dependencies = ["left==1.0.0", "right"]\n{source}'}
    )
    ended = command("fix", tmp_path, registry, "--dry-run")
    assert (ended.code, ended.json["proof_level"]) == (exit_codes.OK, "pins")


@pytest.mark.sandbox
def test_constraints_hold_in_lines_of_our_own(tmp_path: Path, registry: Mapping[str, str]) -> None:
    """``-e .`` is not built, so the lines are installed by themselves, within the constraints."""
    setup = "from setuptools import setup\nsetup(name='app', version='1')\n"
    lines = "-e .\nasks\n-c limits.list\n"
    make(tmp_path, {"requirements.txt": lines, "limits.list": "left==1.0.0\n", "setup.py": setup})
    ended = command("fix", tmp_path, registry, "--dry-run")
    assert (ended.code, ended.json["proof_level"]) == (exit_codes.OK, "resolved_tree")
    assert ended.json["application"]["files"] == ["limits.list"]
