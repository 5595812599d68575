"""Tests of the judge of ``make no-false-fixed``, with real pip and npm on a loopback registry."""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.campaigns.no_false_fixed.case import (
    Case,
    End,
    Ended,
    Judgement,
    Outcome,
    make_repository,
    serving,
)
from tests.campaigns.no_false_fixed.judge import check_case, is_affected, judge

_FIX = {"introduced": "0", "fixed": "1.1.0"}

PIP: dict[str, Any] = {
    "id": "pip-of-the-judge",
    "report": "A pin that the judge's own tests use.",
    "kind": "judge",
    "named": False,
    "author": "blind",
    "ecosystem": "PyPI",
    "advisory": {"package": "left", "ranges": [_FIX]},
    "packages": [
        {"name": "left", "version": "1.0.0"},
        {"name": "left", "version": "1.1.0"},
        {"name": "left", "version": "2.0.0"},
        {"name": "right", "version": "1.0.0"},
    ],
    "files": {"requirements.txt": "left==1.0.0  # pinned\r\nright==1.0.0\r\n", "dev.md": "Text\n"},
    "installs": [{"command": "pip install -r requirements.txt"}],
    "expected": {
        "end": "fixed",
        "changed": ["requirements.txt"],
        "keeps": {"requirements.txt": ["# pinned"]},
        "note": "an ordinary pin",
    },
}

NPM: dict[str, Any] = PIP | {
    "id": "npm-of-the-judge",
    "ecosystem": "npm",
    "packages": [
        *PIP["packages"][:3],
        {"name": "right", "version": "1.0.0", "dependencies": {"left": "1.0.0"}},
    ],
    "files": {"package.json": '{\n\t"dependencies": {\n\t\t"left": "1.0.0"\n\t}\n}\n'},
    "installs": [{"command": "npm install"}],
    "expected": {"end": "fixed", "changed": ["package.json"], "note": "an ordinary pin"},
}


@contextmanager
def _made(tmp_path: Path, fields: Mapping[str, Any]) -> Iterator[tuple[Case, Path, dict[str, str]]]:
    case = Case.model_validate(fields)
    with serving(case) as (registry, environ):
        yield case, make_repository(case, registry, environ, tmp_path / "base"), environ


def _judged(
    tmp_path: Path, fields: Mapping[str, Any], edits: Mapping[str, str], end: End = "fixed"
) -> Judgement:
    with _made(tmp_path, fields) as (case, base, environ):
        after = shutil.copytree(base, tmp_path / "after")
        for path, text in edits.items():
            (after / path).write_bytes(text.encode())
        return judge(case, base, after, Ended(end, 0, "", 1.0), environ)


def _pip(text: str) -> dict[str, str]:
    return {"requirements.txt": text}


@pytest.mark.parametrize(
    ("edits", "end", "outcome"),
    [
        (_pip("left==1.1.0  # pinned\r\nright==1.0.0\r\n"), "fixed", Outcome.AS_EXPECTED),
        (_pip("left==1.1.0  # pinned\r\nright==1.0.0\r\n"), "patched", Outcome.AS_EXPECTED),
        ({}, "fixed", Outcome.FALSE_FIXED),
        (_pip("left<1.1  # pinned\r\nright==1.0.0\r\n"), "fixed", Outcome.FALSE_FIXED),
        (_pip("left==9  # pinned\r\nright==1.0.0\r\n"), "fixed", Outcome.FALSE_FIXED),
        ({}, "not_affected", Outcome.FALSE_UNAFFECTED),
        (_pip("left==2.0.0  # pinned\r\nright==1.0.0\r\n"), "fixed", Outcome.UNREQUESTED_MAJOR),
        (_pip("left==1.1.0\r\nright==1.0.0\r\n"), "fixed", Outcome.LOST_BYTES),
        (_pip("left==1.1.0  # pinned\nright==1.0.0\n"), "fixed", Outcome.LOST_BYTES),
        ({}, "unknown", Outcome.UNKNOWN),
        ({}, "refused", Outcome.OTHER_END),
        ({}, "error", Outcome.OTHER_END),
    ],
)
def test_judge_names_each_outcome_of_a_pip_project(
    tmp_path: Path, edits: dict[str, str], end: End, outcome: Outcome
) -> None:
    judgement = _judged(tmp_path, PIP, edits, end)
    assert judgement.outcome == outcome, judgement


def test_judge_sees_a_change_in_the_wrong_place(tmp_path: Path) -> None:
    edits = _pip("left==1.1.0  # pinned\r\nright==1.0.0\r\n") | {"dev.md": "Other\n"}
    judgement = _judged(tmp_path, PIP, edits)
    assert judgement.outcome == Outcome.WRONG_PLACE
    assert "dev.md" in judgement.detail


@pytest.mark.parametrize(
    ("text", "end", "outcome"),
    [
        ('{\n\t"dependencies": {\n\t\t"left": "1.1.0"\n\t}\n}\n', "fixed", Outcome.AS_EXPECTED),
        ('{\n  "dependencies": {\n    "left": "1.1.0"\n  }\n}\n', "fixed", Outcome.LOST_BYTES),
        ('{\n\t"dependencies": {\n\t\t"left": "~1.0.0"\n\t}\n}\n', "fixed", Outcome.FALSE_FIXED),
        (NPM["files"]["package.json"], "not_affected", Outcome.FALSE_UNAFFECTED),
    ],
)
def test_judge_names_each_outcome_of_an_npm_project(
    tmp_path: Path, text: str, end: End, outcome: Outcome
) -> None:
    judgement = _judged(tmp_path, NPM, {"package.json": text}, end)
    assert judgement.outcome == outcome, judgement


def test_judge_finds_a_nested_copy_and_an_alias(tmp_path: Path) -> None:
    nested = {"left": "1.1.0", "right": "1.0.0"}
    text = json.dumps({"dependencies": nested}, indent="\t") + "\n"
    assert _judged(tmp_path / "a", NPM, {"package.json": text}).outcome == Outcome.FALSE_FIXED
    aliased = {"left": "1.1.0", "old": "npm:left@1.0.0"}
    text = json.dumps({"dependencies": aliased}, indent="\t") + "\n"
    assert _judged(tmp_path / "b", NPM, {"package.json": text}).outcome == Outcome.FALSE_FIXED


def test_check_case_finds_an_end_that_the_clients_contradict(tmp_path: Path) -> None:
    expected = {"end": "not_affected", "note": "not so at all"}
    for number, (fields, problems) in enumerate([(PIP, 0), (PIP | {"expected": expected}, 1)]):
        with _made(tmp_path / str(number), fields) as (case, base, environ):
            assert len(check_case(case, base, environ)) == problems


@pytest.mark.parametrize(
    ("ecosystem", "spans", "affected", "others"),
    [
        ("PyPI", [_FIX], ["1.0.0", "1.1.0rc1", "1.0.0+local"], ["1.1.0", "1.1.0.post1", "1!0.1"]),
        ("npm", [_FIX], ["1.0.0", "1.1.0-rc.1"], ["1.1.0", "1.1.0+build", "1.10.0"]),
        ("npm", [{"introduced": "1.0.0", "last_affected": "1.0.0"}], ["1.0.0"], ["0.9.0", "1.0.1"]),
        ("PyPI", [_FIX, {"introduced": "2", "fixed": "2.1"}], ["2.0.5", "1.0"], ["1.5", "2.1.0"]),
    ],
)
def test_affected_versions_follow_the_ranges(
    ecosystem: str, spans: list[dict[str, str]], affected: list[str], others: list[str]
) -> None:
    advisory = {"package": "left", "ranges": spans}
    case = Case.model_validate(PIP | {"ecosystem": ecosystem, "advisory": advisory})
    assert [it for it in affected + others if is_affected(case, "left", it)] == affected
