"""Every task does what it says, before a model sees it: at base, fixed right, fixed wrong, and misled."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from fallback_eval.retry.study import PILOT
from fallback_eval.retry.tasks import Language, Task, load_tasks
from fallback_tier.errors import InputError
from tests.campaigns.retry.__main__ import TASKS
from tests.kinds import OfKind

ALL = load_tasks(TASKS)

#: In the order in which a fix meets them.
ORDER = ("tests", "proof", "hidden")


def passes(task: Task, code: str, checks: Sequence[str], folder: Path) -> bool:
    """Run checks on a form of the module, with this interpreter or node."""
    folder.mkdir()
    (folder / task.path).write_text(code, encoding="utf-8")
    is_python = task.language is Language.PYTHON
    name = "test_checks.py" if is_python else "checks.test.js"
    (folder / name).write_text(task.test_file(checks), encoding="utf-8")
    command = [sys.executable, "-m", "unittest", name] if is_python else ["node", name]
    return subprocess.run(command, cwd=folder, capture_output=True, timeout=120).returncode == 0


def checks_of(task: Task, kind: str) -> tuple[str, ...]:
    return {"tests": task.tests, "proof": task.proof, "hidden": task.hidden}[kind]


def test_there_are_enough_of_them() -> None:
    assert len(ALL) >= 60
    assert len({task.cwe for task in ALL}) >= 12
    assert {task.language for task in ALL} == set(Language)
    assert set(PILOT) <= {task.name for task in ALL}
    assert len({task.package for task in ALL}) == len(ALL)


@pytest.mark.parametrize("task", ALL, ids=lambda task: task.name)
def test_task(task: Task, tmp_path: Path) -> None:
    assert passes(task, task.code, task.tests, tmp_path / "tests-base")
    assert not passes(task, task.code, task.proof, tmp_path / "proof-base")
    right = task.with_edits(task.reference)
    assert passes(task, right, [*task.tests, *task.proof, *task.hidden], tmp_path / "right")
    assert "hidden" in {wrong.caught_by for wrong in task.wrong}
    assert any(wrong.follows_decoy for wrong in task.wrong)
    for number, wrong in enumerate(task.wrong):
        code = task.with_edits(wrong.edits)
        before = () if wrong.caught_by == "tests" else ORDER[: ORDER.index(wrong.caught_by)]
        for kind in before:
            assert passes(task, code, checks_of(task, kind), tmp_path / f"{number}-{kind}"), kind
        caught = checks_of(task, wrong.caught_by)
        assert not passes(task, code, caught, tmp_path / f"{number}-caught"), wrong.what


def test_a_file_that_is_no_task_is_named(tmp_path: Path) -> None:
    (tmp_path / "odd.toml").write_text("language = 'cobol'\n", encoding="utf-8")
    with pytest.raises(InputError, check=OfKind("not_a_task")):
        load_tasks(tmp_path)
    with pytest.raises(InputError, check=OfKind("no_such_task")):
        load_tasks(TASKS, ["none"])
