"""What the Python ladder selects, what it outlines, and what it refuses by name. No client runs."""

import json
from pathlib import Path

import pytest

from fallback_audit.vocabulary import LadderStep, RefusalReason
from fallback_plugins.pypi import build_ecosystem
from fallback_tier.advisory import bundle
from fallback_tier.outcome import NotApplicable, Selected
from tests.unit.pypi.pypi_files import RECORD, offline, pyproject
from tests.unit.shared.recipes import FakeClients, advisory, refusal, repository

UNSUPPORTED = RefusalReason.RECIPE_UNSUPPORTED
NOT_AFFECTED = RefusalReason.NOT_AFFECTED
UNKNOWN = RefusalReason.UNKNOWN

UV_LOCK = """\
version = 1
requires-python = ">=3.9"

[[package]]
name = "app"
version = "1"
source = { editable = "." }
dependencies = [{ name = "idna" }]

[[package]]
name = "idna"
version = "3.7"
source = { registry = "https://example.org/simple" }
"""


@pytest.mark.parametrize(
    ("files", "reason", "words"),
    [
        ({"README.md": "idna==3.1"}, RefusalReason.MANIFEST_MISSING, "requirements"),
        ({"requirements.txt": "six==1.0\n"}, UNKNOWN, "requirements.txt was not resolved"),
        ({"requirements.txt": "idna==3.7\n"}, NOT_AFFECTED, "idna"),
        ({"requirements.txt": "idna>=3.7\n"}, NOT_AFFECTED, "idna"),
        ({"requirements.txt": "idna\n"}, UNKNOWN, "requirements.txt was not resolved"),
        ({"requirements.txt": "idna<4\n"}, UNKNOWN, "requirements.txt was not resolved"),
        (
            {"requirements.txt": "idna>=3.1,!=3.7\n"},
            RefusalReason.NO_FIXED_VERSION,
            "no fixed version above 3.1",
        ),
        ({"requirements.txt": "idna @ git+x\n"}, UNSUPPORTED, "URL"),
        (
            {"pdm.lock": '[[package]]\nname = "idna"\nversion = "3.1"\n'},
            UNSUPPORTED,
            "pdm.lock holds idna 3.1, but only pdm writes it",
        ),
        (
            {"pylock.toml": '[[packages]]\nname = "idna"\nversion = "3.1"\n'},
            UNSUPPORTED,
            "only the client that made it writes it",
        ),
        (
            {
                "pdm.lock": '[[package]]\nname = "idna"\nversion = "3.7"\n',
                "pyproject.toml": pyproject("idna>=3.0"),
            },
            NOT_AFFECTED,
            "idna",
        ),
        # setup.cfg is what the lock is made from, and the lock has chosen.
        (
            {
                "uv.lock": UV_LOCK,
                "pyproject.toml": '[project]\nname = "app"\ndynamic = ["dependencies"]\n',
                "setup.cfg": "[options]\ninstall_requires =\n  idna>=3.0\n",
            },
            NOT_AFFECTED,
            "idna",
        ),
        (
            {
                "pyproject.toml": pyproject(
                    "idna==3.1", more='[tool.uv.sources]\nidna = { git = "https://host/idna" }\n'
                )
            },
            UNSUPPORTED,
            "[tool.uv.sources] takes it",
        ),
        (
            {"pyproject.toml": '[tool.poetry.dependencies]\nidna = { git = "https://host" }\n'},
            UNSUPPORTED,
            "a checkout",
        ),
        (
            {"pyproject.toml": '[tool.poetry.dependencies]\nidna = "^2.0 || ^3.1"\n'},
            UNSUPPORTED,
            "a choice of ranges",
        ),
        ({"Pipfile": '[packages]\nidna = {path = "../idna"}\n'}, UNSUPPORTED, "a checkout"),
        (
            {"setup.cfg": "[options]\ninstall_requires = idna>=3.1\n"},
            UNSUPPORTED,
            "elsewhere than one requirement a line",
        ),
        ({"setup.py": "i = 'idna==3.1'\nsetup(install_requires=[i])\n"}, UNSUPPORTED, "a program"),
        ({"pyproject.toml": "idna = ["}, UNKNOWN, "is not TOML"),
    ],
)
def test_refusals_by_name(
    tmp_path: Path, files: dict[str, str], reason: RefusalReason, words: str
) -> None:
    reported = refusal(build_ecosystem(FakeClients()), RECORD, offline(tmp_path, files))
    assert reported.reason is reason, reported
    assert words in reported.sentence


def test_no_fixed_version(tmp_path: Path) -> None:
    repo = repository(tmp_path, {"requirements.txt": "idna==3.1\n"})
    plugin = build_ecosystem(FakeClients())
    none = advisory("PyPI", "idna", [("0", None)])
    assert refusal(plugin, none, repo).reason is RefusalReason.NO_FIXED_VERSION
    below = advisory("PyPI", "idna", [("0", "2.9"), ("3.0", None)])
    assert refusal(plugin, below, repo).reason is RefusalReason.NO_FIXED_VERSION


LOCKS = {
    "uv.lock": UV_LOCK,
    "poetry.lock": '[[package]]\nname = "idna"\nversion = "3.7"\n',
    "Pipfile.lock": json.dumps({"default": {"idna": {"version": "==3.7"}}}),
}


@pytest.mark.parametrize("lock", LOCKS)
@pytest.mark.parametrize(
    ("path", "asking"),
    [
        ("setup.cfg", "[options]\ninstall_requires =\n  idna{}\n"),
        ("setup.py", 'setup(install_requires=["idna{}"])\n'),
        ("pyproject.toml", '[project]\nname = "app"\ndependencies = ["idna{}"]\n'),
    ],
)
def test_a_range_beside_a_lock_stays_where_it_admits_what_is_locked(
    tmp_path: Path, lock: str, path: str, asking: str
) -> None:
    plugin = build_ecosystem(FakeClients())

    def named(folder: str, spec: str, locked: str) -> list[str]:
        files = {lock: locked, path: asking.format(spec)}
        outline = plugin.outline(RECORD, offline(tmp_path / folder, files))
        return [it.manifest for it in (*outline.moves, *outline.left) if it.manifest]

    affected = LOCKS[lock].replace('"3.7"', '"3.1"').replace("==3.7", "==3.1")
    assert named("safe", ">=3.0", LOCKS[lock]) == []
    assert named("affected", ">=3.0", affected) == [lock]
    # A cap below the fix, an exact pin and a lock without the package leave nothing decided.
    elsewhere = LOCKS[lock].replace("idna", "other")
    assert path in named("none", ">=3.0", elsewhere) or path == "pyproject.toml"
    if not (path == "pyproject.toml" and lock != "Pipfile.lock"):  # there the lock is made from it
        assert path in named("cap", ">=3.0,<3.5", affected)
        assert path in named("pin", "==3.1", affected)


@pytest.mark.parametrize(
    ("files", "selected"),
    [
        # What isn't named may come in with six: only a resolved tree tells.
        ({"requirements.txt": "six\n"}, True),
        ({"requirements.txt": "six==1.0\n"}, True),
        ({"requirements.txt": "six==1.0  # idna comes with it\n"}, True),
        ({"pyproject.toml": pyproject("six")}, True),
        ({"Pipfile": '[packages]\nsix = "*"\n'}, True),
        # Compiled and hash-pinned sets name all that they install; constraints install nothing.
        # … if each line says why it is there: a hand may have added another.
        ({"requirements.txt": "# This file is autogenerated by pip-compile\nsix==1.0\n"}, True),
        ({"requirements.txt": "six==1.0\n    # via app\n"}, False),
        ({"requirements.txt": "six==1.0 --hash=sha256:0\n"}, False),
        ({"requirements.in": "six\n", "requirements.txt": "six==1.0  # via app\n"}, False),
        ({"constraints.txt": "six==1.0\n"}, False),
        ({"pyproject.toml": "[tool.black]\n"}, False),
    ],
)
def test_what_only_a_resolved_tree_could_tell_is_selected(
    tmp_path: Path, files: dict[str, str], selected: bool
) -> None:
    plugin = build_ecosystem(FakeClients())
    outcome = plugin.select(RECORD, repository(tmp_path / "on", files))
    assert isinstance(outcome, Selected if selected else NotApplicable), outcome
    # Without a registry nothing can be resolved, and what is not resolved is unknown.
    unasked = plugin.select(RECORD, offline(tmp_path / "off", files))
    assert isinstance(unasked, NotApplicable)
    assert unasked.reason is (UNKNOWN if selected else NOT_AFFECTED)
    assert [item.path for item in unasked.unread] == ([*files] if selected else [])


def test_the_outline_of_several_advisories(tmp_path: Path) -> None:
    records = [RECORD, advisory("PyPI", "six", [("0", "1.16")]), advisory("PyPI", "attrs")]
    records.append(advisory("PyPI", "tox", [("0", None)]))
    both = bundle([it.model_copy(update={"id": f"A-{n}"}) for n, it in enumerate(records)])
    files = {
        "requirements.txt": "idna==3.1\nsix~=1.12.0\nattrs==1\n",
        "Pipfile": '[packages]\ntox = "==1.0"\n',
        "broken/pyproject.toml": 'x = ["idna',
    }
    reported = build_ecosystem(FakeClients()).outline(both, repository(tmp_path, files))
    assert [(move.package, move.before, move.after, move.step) for move in reported.moves] == [
        ("idna", ("3.1",), "3.7", LadderStep.DIRECT_BUMP),
        ("six", ("1.12.0",), "1.16", LadderStep.DIRECT_BUMP),
    ]
    assert [(item.manifest, item.reason, item.advisory_ids) for item in reported.left] == [
        ("Pipfile", RefusalReason.NO_FIXED_VERSION, ("A-3",)),
        ("broken/pyproject.toml", UNKNOWN, ("A-0",)),
    ]


def test_what_the_plugin_says_of_itself() -> None:
    plugin = build_ecosystem(FakeClients())
    assert plugin.name == "PyPI"
    assert plugin.manifests(["a.py", "requirements.txt", "uv.lock"]) == (
        "requirements.txt",
        "uv.lock",
    )
    keys = plugin.editable_keys("pyproject.toml")
    assert keys is not None
    assert {"project.dependencies", "tool.poetry.group", "tool.uv.constraint-dependencies"} < {
        *keys
    }
    assert plugin.editable_keys("requirements.txt") == ()
    assert plugin.editable_keys("a.py") is None
