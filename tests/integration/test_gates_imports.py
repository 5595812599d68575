"""Imports beside the base commit's: real uv, Python and bubblewrap, over releases made up for it."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from fallback_audit.vocabulary import FailureKind, GateStatus
from fallback_plugins.pypi.gates import checks
from fallback_plugins.pypi.gates.checks import ImportsGate
from fallback_tier.gate_ports import GateVerdict
from fallback_tier.sandbox.clients import SubprocessClients
from tests.integration.gate_setup import advisory, needs_sandbox, patched
from tests.registry import Registry, Universe, serve

pytestmark = pytest.mark.sandbox

OWN = advisory("app", "PyPI")
SHOP = advisory("shop", "PyPI")


def module(text: str, name: str = "shop") -> dict[str, str]:
    return {f"{name}/__init__.py": text}


#: Of an error that says where it is, and what it holds.
PLACED = (
    "raise ImportError(f'no licence in {__file__} for {object()!r}, see line {LINE} of the log')\n"
)

UNIVERSE = (
    Universe()
    .pypi("shop", "1.0", ["tills"], files=module("from tills import old\n"))
    .pypi("shop", "2.0", ["tills"], files=module("from tills import gone\n"))
    .pypi("shop", "2.1", ["tills"], files=module("import tills\n"))
    # Without what it brought once.
    .pypi("shop", "2.2", files={"shop/__init__.py": ""})
    .pypi("shop", "1.1", files={"shop/__init__.py": "", "legacy.py": "", "tests/__init__.py": ""})
    # Never imports here; with each release for another reason, or for the same.
    .pypi("shop", "3.0", files=module("raise ImportError('needs libtill 1.4')\n"))
    .pypi("shop", "3.1", files=module("raise ImportError('needs libtill 1.4')\n"))
    .pypi("shop", "3.2", files=module("raise ImportError('needs libtill 2.0')\n"))
    .pypi("shop", "3.3", files=module("from nowhere import till\n"))
    .pypi("shop", "3.4", files=module("LINE = 7\n" + PLACED))
    .pypi("shop", "3.5", files=module("\n\nLINE = 90\n" + PLACED))
    .pypi("shop", "4.0", files=module("import time\ntime.sleep(600)\n"))
    .pypi("tills", "1.0", files=module("old = 1\n", "tills"))
    .pypi("tills", "0.9", files=module("", "tills"))
    # Not to be had beside plain 1.0.
    .pypi("gone", "1.0", sdist_only=True)
    .pypi("gone", "2.0", ["plain>=1.1"], files=module("raise ImportError('gone')\n", "gone"))
    .pypi("plain", "1.0")
    .pypi("plain", "1.1", files=module("print('cannot import anything: Error: no')\n", "plain"))
)


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    with serve(UNIVERSE) as registry:
        yield registry


@pytest.fixture(autouse=True)
def _sandbox() -> None:
    needs_sandbox()


def judged(
    place: Path,
    files: Mapping[str, str],
    change: Mapping[str, str | None],
    registry: Registry | None = None,
    timeout_s: float = 120.0,
) -> GateVerdict:
    about = OWN if registry is None else SHOP
    with patched(place, files, change, about=about, timeout_s=timeout_s) as case:
        if registry is not None:
            case = case.with_(clients=SubprocessClients(os.environ | registry.environ))
        return ImportsGate().judge(case.context)


def moved(place: Path, registry: Registry, before: str, after: str, **more: str) -> GateVerdict:
    """Over a project that is nothing but its requirements (a line each, ``;`` between them)."""
    lines = (text.replace(";", "\n") + "\n" for text in (before, after))
    one, other = ({"requirements.txt": text} for text in lines)
    return judged(place, one | more, other, registry)


# --- own modules ----------------------------------------------------------------------------------

APP = {
    "app/__init__.py": "",
    "app/core.py": "import json\n",
    "app/extra.py": "import nowhere_at_all\n",
    "scripts/run.py": "raise SystemExit('not to be imported')\n",
}


def test_a_module_that_no_longer_imports_fails(tmp_path: Path) -> None:
    change = {
        "app/core.py": "from json import nothing_of_the_kind\n",
        "scripts/run.py": "exit(1)\n",
    }
    verdict = judged(tmp_path, APP, change)
    assert verdict.failure_kind is FailureKind.BUILD_FAILED
    assert "cannot import app.core: ImportError: cannot import name" in verdict.log
    assert 'File "app/core.py", line 1' in verdict.log
    assert "scripts" not in verdict.log


def test_a_module_that_never_imported_does_not_count(tmp_path: Path) -> None:
    change = {"app/extra.py": "import nowhere_at_all  # really\n", "app/core.py": "import re\n"}
    same = judged(tmp_path / "1", APP, change)
    worse_change = change | {"app/core.py": "import json.nothing\n"}
    worse = judged(tmp_path / "2", APP, worse_change)
    assert same.status is GateStatus.PASSED
    assert "nothing_new" in same.kinds
    message = "ModuleNotFoundError: No module named 'json.nothing'"
    assert worse.log == f"cannot import app.core: {message}"


def test_a_new_module_that_needs_what_nobody_declared_fails(tmp_path: Path) -> None:
    verdict = judged(tmp_path, APP, {"app/new.py": "import undeclared\n"})
    assert verdict.failure_kind is FailureKind.BUILD_FAILED
    assert "cannot import app.new: ModuleNotFoundError: No module named 'undeclared'" in verdict.log


def test_a_module_that_fails_for_another_reason_than_before_fails(tmp_path: Path) -> None:
    """Else whatever a patch does to a module would count as before, once it can't be imported."""
    files = APP | {"app/core.py": "from json import nothing_of_the_kind\n"}
    verdict = judged(tmp_path, files, {"app/core.py": "from json import nor_this\n"})
    assert verdict.failure_kind is FailureKind.BUILD_FAILED
    assert "cannot import app.core: ImportError: cannot import name 'nor_this'" in verdict.log


def test_lines_places_and_addresses_make_no_other_reason(tmp_path: Path) -> None:
    """A syntax error names its line, which an edit moves; a tree and an object lie elsewhere each time."""
    message = (
        "import tempfile\n"
        "place = tempfile.mkdtemp(prefix='cache-')\n"
        "raise ImportError(f'{__file__} {object()!r} {place} {tempfile.mkdtemp(dir=place)}')\n"
    )
    files = APP | {"app/core.py": "def f(:\n", "app/extra.py": message}
    change = {"app/core.py": "\n\ndef f(:\n", "app/extra.py": "\n" + message}
    verdict = judged(tmp_path, files, change)
    assert verdict.status is GateStatus.PASSED
    assert "nothing new; 2 problem(s)" in verdict.detail


def test_what_there_is_no_time_for_is_named(tmp_path: Path) -> None:
    hangs = "import time\ntime.sleep(600)\n"
    change = {"app/core.py": "import re\n", "app/slow.py": hangs}
    verdict = judged(tmp_path / "1", APP, change, timeout_s=8)
    assert verdict.status is GateStatus.PASSED
    assert verdict.detail.endswith("in order; no time was left to import app.slow, app")
    verdict = judged(tmp_path / "2", APP, {"app/core.py": hangs}, timeout_s=8)
    assert verdict.status is GateStatus.SKIPPED
    assert verdict.detail == "no time was left to import app.core, app"


# --- direct dependencies --------------------------------------------------------------------------


def test_a_dependency_that_no_longer_imports_fails(tmp_path: Path, registry: Registry) -> None:
    verdict = moved(tmp_path, registry, "shop==1.0", "shop==2.0")
    assert verdict.failure_kind is FailureKind.BUILD_FAILED
    assert verdict.detail == "import of shop fails"
    assert "cannot import shop: ImportError: cannot import name 'gone' from 'tills'" in verdict.log


def test_a_dependency_that_stays_and_needs_what_moved_is_asked_for(
    tmp_path: Path, registry: Registry
) -> None:
    verdict = moved(tmp_path, registry, "shop==1.0;tills==1.0", "shop==1.0;tills==0.9")
    assert verdict.failure_kind is FailureKind.BUILD_FAILED
    assert "cannot import name 'old' from 'tills'" in verdict.log


def test_what_imports_as_before_passes(tmp_path: Path, registry: Registry) -> None:
    verdict = moved(tmp_path, registry, "shop==1.0;plain==1.0", "shop==2.1;plain==1.0")
    assert verdict.status is GateStatus.PASSED
    assert verdict.detail == "import of shop, plain: in order"


def test_a_new_dependency_that_does_not_import_fails(tmp_path: Path, registry: Registry) -> None:
    verdict = moved(tmp_path, registry, "plain==1.0", "plain==1.0;shop==2.0")
    assert verdict.failure_kind is FailureKind.BUILD_FAILED


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [
        ("shop==3.0", "shop==3.1", GateStatus.PASSED),
        ("shop==3.4", "shop==3.5", GateStatus.PASSED),
        # The version is part of the reason.
        ("shop==3.0", "shop==3.2", GateStatus.FAILED),
        ("shop==3.0", "shop==3.3", GateStatus.FAILED),
        ("shop==3.0", "shop==2.0", GateStatus.FAILED),
    ],
)
def test_what_failed_before_is_not_the_patchs_where_it_says_the_same(
    tmp_path: Path, registry: Registry, before: str, after: str, status: GateStatus
) -> None:
    verdict = moved(tmp_path, registry, before, after)
    assert verdict.status is status
    if status is GateStatus.PASSED:
        assert "nothing_new" in verdict.kinds


def test_a_module_that_a_release_no_longer_brings_is_missed(
    tmp_path: Path, registry: Registry
) -> None:
    verdict = moved(tmp_path, registry, "shop==1.1", "shop==2.2")
    assert verdict.failure_kind is FailureKind.BUILD_FAILED
    assert "cannot import legacy: ModuleNotFoundError: No module named 'legacy'" in verdict.log
    assert "tests" not in verdict.log


def test_what_the_patch_no_longer_declares_is_not_asked_for(
    tmp_path: Path, registry: Registry
) -> None:
    verdict = moved(tmp_path, registry, "shop==1.0;plain==1.0", "plain==1.0")
    assert verdict.detail == "import of plain: in order"


def test_what_the_patch_can_have_broken_comes_first(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "MAX_DEPENDENCIES", 1)
    before, after = "plain==1.0;shop==1.0;tills==1.0", "plain==1.0;shop==1.0;tills==0.9"
    verdict = moved(tmp_path, registry, before, after)
    assert verdict.detail == "import of shop fails"


def test_a_patch_that_moves_nothing_asks_for_no_dependency(
    tmp_path: Path, registry: Registry
) -> None:
    verdict = moved(tmp_path, registry, "shop==2.0", "shop==2.0 # why")
    assert verdict.status is GateStatus.SKIPPED
    assert verdict.detail == (
        "'.' has no module of its own to import, and no dependency of it moves"
    )


def test_own_modules_come_first_and_both_are_told(tmp_path: Path, registry: Registry) -> None:
    more = {"app/__init__.py": ""}
    verdict = moved(tmp_path, registry, "shop==1.0", "shop==2.0", **more)
    assert verdict.detail == "import of shop fails"
    verdict = moved(tmp_path / "2", registry, "shop==1.0", "shop==2.1", **more)
    assert verdict.detail == "import of app, shop: in order"


def test_what_the_base_commit_could_not_install_has_nothing_to_be_compared_with(
    tmp_path: Path, registry: Registry
) -> None:
    verdict = moved(tmp_path, registry, "plain==1.0;gone==1.0", "plain==1.1;gone==2.0")
    assert verdict.detail == "import of plain: in order"


PYPROJECT = """\
[project]
name = "app"
version = "1"
requires-python = ">=3.9"
dependencies = ["plain=={}"]
[project.optional-dependencies]
docs = ["shop==2.0"]
"""


def test_what_an_extra_asks_for_that_is_not_installed_is_not_asked_for(
    tmp_path: Path, registry: Registry
) -> None:
    files, change = ({"pyproject.toml": PYPROJECT.format(one)} for one in ("1.0", "1.1"))
    verdict = judged(tmp_path, files, change, registry)
    assert verdict.status is GateStatus.PASSED
    assert verdict.detail == "import of plain: in order"
