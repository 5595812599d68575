"""What a version change does not reach is said beside the fix."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.pypi import build_ecosystem
from fallback_tier.advisory import Advisory, parse_advisory
from tests.unit.pypi.pypi_files import offline
from tests.unit.shared.recipes import FakeClients, fix, refusal

FIXED = {"requirements.txt": "left==1.0.0\n"}


def record(**more: Any) -> Advisory:
    affected = [
        {
            "package": {"ecosystem": ecosystem, "name": name},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "1.1.0"}]}],
        }
        for ecosystem, name in (("PyPI", "left"), ("RubyGems", "left-rb"), ("Go", "host/left"))
    ]
    fields = {"id": "OSV-1", "summary": "A test record.", "affected": affected, **more}
    return parse_advisory(json.dumps(fields).encode(), "test")


def notes(root: Path, advisory: Advisory, files: Mapping[str, str]) -> Sequence[str]:
    plugin = build_ecosystem(FakeClients())
    return fix(plugin, advisory, offline(root, {**FIXED, **files})).notes


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"Gemfile.lock": "GEM\n  specs:\n    left-rb (1.0.0)\n"}, "Gemfile.lock names left-rb"),
        ({"svc/go.mod": "require host/left v1.0.0\n"}, "svc/go.mod names host/left"),
        ({"Gemfile.lock": "    left-rb-extra (1.0.0)\n"}, ""),
        ({"notes.txt": "left-rb\n"}, ""),
    ],
)
def test_other_ecosystems_of_the_record(
    tmp_path: Path, files: Mapping[str, str], words: str
) -> None:
    found = [note for note in notes(tmp_path, record(), files) if "that ecosystem's client" in note]
    assert [note[: len(words)] for note in found] == ([words] if words else [])


@pytest.mark.parametrize(
    ("more", "warned"),
    [
        ({"database_specific": {"cwe_ids": ["CWE-506"]}}, True),
        ({"id": "MAL-2026-1"}, True),
        ({"aliases": ["MAL-2026-1"]}, True),
        ({"database_specific": {"cwe_ids": ["CWE-79"]}}, False),
    ],
)
def test_malicious_code_may_have_run(tmp_path: Path, more: Mapping[str, Any], warned: bool) -> None:
    found = [note for note in notes(tmp_path, record(**more), {}) if "rotate the secrets" in note]
    assert len(found) == warned
    assert all("left 1.0.0" in note for note in found)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("app/_vendor/left/__init__.py", "'''Left.'''\n__version__ = '1.0.0'\n"),
        ("app/_vendor/left/_version.py", 'version: str = "1.0.0"\n'),
        ("app/vendor/left.py", '__version__ = "1.0.0"\n'),
        (
            "lib/Left-1.0.0.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: left\nVersion: 1.0.0\n",
        ),
        ("lib/left.egg-info/PKG-INFO", "Metadata-Version: 1.0\nVersion: 1.0.0\n"),
    ],
)
def test_committed_copies(tmp_path: Path, path: str, text: str) -> None:
    plugin = build_ecosystem(FakeClients())
    held = refusal(plugin, record(), offline(tmp_path / "held", {path: text, "setup.cfg": ""}))
    assert held.reason is not RefusalReason.NOT_AFFECTED
    assert f"{path} holds a copy of left 1.0.0" in held.sentence
    noted = notes(tmp_path / "noted", record(), {path: text})
    assert any(f"{path} holds a copy of left 1.0.0" in note for note in noted)
    safe = text.replace("1.0.0", "1.1.0")
    clean = refusal(plugin, record(), offline(tmp_path / "safe", {path: safe, "setup.cfg": ""}))
    assert clean.reason is RefusalReason.NOT_AFFECTED


@pytest.mark.parametrize(
    "path", ["left/__init__.py", "tests/_vendor/left/__init__.py", "app/_vendor/left/x/__init__.py"]
)
def test_other_code_is_no_copy(tmp_path: Path, path: str) -> None:
    repo = offline(tmp_path, {path: '__version__ = "1.0.0"\n', "setup.cfg": ""})
    plugin = build_ecosystem(FakeClients())
    assert refusal(plugin, record(), repo).reason is RefusalReason.NOT_AFFECTED
