"""What can be had of a project's lines is installed, and each that can't is named."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_plugins.pypi.installing.declared import Source
from fallback_plugins.pypi.installing.environment import Setting, as_base
from fallback_plugins.pypi.installing.install import (
    MAX_TRIES,
    Failure,
    InstallLadder,
    InstallPlan,
    InstallWay,
    is_final,
    reason,
)
from fallback_plugins.pypi.manifests.pyproject import of_extra
from fallback_plugins.shared.installation import Installed, Level
from fallback_tier.errors import ToolFailedError
from fallback_tier.execution import CommandResult


class Registry:
    """A uv that has no wheel of some lines, and takes no two that contradict each other."""

    def __init__(self, bad: frozenset[str] = frozenset(), answer: str = "no wheel of it") -> None:
        self.bad, self.answer = bad, answer
        self.files: dict[str, str] = {}
        self.installed: set[str] = set()
        self.runs: list[Sequence[str]] = []

    def write(self, lines: str) -> Path:
        place = f"file-{len(self.files)}"
        self.files[place] = lines
        return Path(place)

    def run(self, words: Sequence[str]) -> CommandResult:
        self.runs.append(words)
        lines = self.files[words[words.index("-r") + 1]].split("\n")
        if missing := self.bad.intersection(lines):
            message = f"error: {min(missing)}: {self.answer} hint: build it"
            return CommandResult(argv=("uv",), exit_code=1, output=message, duration_ms=1)
        self.installed.update(lines)
        return CommandResult(argv=("uv",), exit_code=0, output="", duration_ms=1)


NAMES = [f"name-{number}" for number in range(40)]


@given(bad=st.frozensets(st.sampled_from(NAMES), max_size=6), pinned=st.booleans())
def test_every_line_that_can_be_had_is_there_and_every_other_is_named(
    bad: frozenset[str], pinned: bool
) -> None:
    uv = Registry(bad)
    source = Source("requirements.txt", tuple(NAMES), pinned=pinned)
    found = InstallLadder(InstallPlan((), lambda: [source]), uv.run, uv.write).run()
    assert uv.installed == set(NAMES) - bad
    assert {line for line, _ in found.declined} == bad
    assert all(why == f"{line}: no wheel of it" for line, why in found.declined)
    assert found.level is Level.IN_PART
    assert len(uv.runs) <= MAX_TRIES


def test_a_named_line_is_found_at_once_and_not_tried_again_in_another_file() -> None:
    bad = frozenset({"name-3", "name-17", "name-31"})
    uv = Registry(bad)
    sources = [Source(f"{number}.txt", tuple(NAMES)) for number in range(4)]
    installed = InstallLadder(InstallPlan((), lambda: sources), uv.run, uv.write).run()
    assert uv.installed == set(NAMES) - bad
    assert [line for line, _ in installed.declined] == sorted(bad, key=NAMES.index) * 4
    # Of each: the lines before it, itself, another release, the lines after it.
    assert len(uv.runs) <= 4 * len(bad) + len(sources)


@given(
    bad=st.frozensets(st.sampled_from(NAMES), max_size=6),
    known=st.frozensets(st.sampled_from(NAMES), max_size=6),
)
def test_a_line_that_is_known_to_fail_is_not_tried_and_named_as_before(
    bad: frozenset[str], known: frozenset[str]
) -> None:
    lines = tuple(f"{name}==1" for name in NAMES)
    failing = frozenset(f"{name}==1" for name in bad | known)
    sources = [Source("a.txt", lines[:30]), Source("b.txt", lines[10:])]
    first = Registry(failing)
    ladder = InstallLadder(InstallPlan((), lambda: sources), first.run, first.write)
    before = ladder.run()
    failures = ladder.failures(())
    assert failures.keys() == failing
    second = Registry(failing)
    plan = InstallPlan(
        (), lambda: sources, failed={f"{name}==1": failures[f"{name}==1"] for name in known}
    )
    again = InstallLadder(plan, second.run, second.write)
    assert again.run() == before
    assert second.installed == first.installed
    assert again.failures(()).keys() == failing
    tried = {line for text in second.files.values() for line in text.split("\n")}
    assert tried.isdisjoint(f"{name}==1" for name in known)
    assert len(second.runs) <= len(first.runs)


def test_a_pinned_line_is_tried_though_it_failed_with_its_dependencies() -> None:
    uv = Registry()
    source = Source("lock", ("left==1", "right==1"), pinned=True)
    failed = {"left==1": Failure.of("part of it has no wheel")}
    plan = InstallPlan((), lambda: [source], failed=failed)
    assert InstallLadder(plan, uv.run, uv.write).run().declined == ()
    assert uv.installed == {"left==1", "right==1"}


def test_a_release_that_another_line_installs_is_named_in_both_runs() -> None:
    uv = Registry(frozenset({"left==9"}))
    source = Source("r", ("left==9", "left"))
    ladder = InstallLadder(InstallPlan((), lambda: [source]), uv.run, uv.write)
    plan = InstallPlan(
        (), lambda: [source], failed=(before := ladder.run()) and ladder.failures(())
    )
    assert InstallLadder(plan, uv.run, uv.write).run() == before


def test_what_a_new_wheel_may_help_is_tried_again() -> None:
    """A line that failed is known to fail, unless uv's reason names a package that is available now."""
    uv = Registry(frozenset({"left==1", "right==1", "late==1"}), "Right_Pad has no usable wheels")
    lines = ("left==1", "early==1", "right==1")
    ladder = InstallLadder(InstallPlan((), lambda: [Source("r", lines)]), uv.run, uv.write)
    ladder.run()
    assert ladder.failures({"other"}).keys() == {"left==1", "right==1"}
    assert ladder.failures({"right-pad"}).keys() == set()
    assert ladder.failures({"left"}).keys() == {"right==1"}
    # What was known before stays known, with the names of its reason.
    plan = InstallPlan((), lambda: [Source("r", lines)], failed=ladder.failures(()))
    further = InstallLadder(plan, uv.run, uv.write)
    further.run()
    assert further.failures({"right-pad"}).keys() == set()


def test_what_was_not_tried_is_not_known_to_fail() -> None:
    names = tuple(f"name-{number}==1" for number in range(400))
    uv = Registry(frozenset(names))
    ladder = InstallLadder(InstallPlan((), lambda: [Source("r", names)]), uv.run, uv.write)
    declined = dict(ladder.run().declined)
    tried = {line for line, why in declined.items() if is_final(why)}
    assert ladder.failures(()).keys() == tried
    assert 0 < len(tried) < len(names)


class Contradicting(Registry):
    """Takes no two lines of which one excludes the other, and names only some of them."""

    def __init__(self, pairs: Sequence[tuple[str, str]], named: Sequence[str]) -> None:
        super().__init__()
        self.pairs, self.named = pairs, named

    def run(self, words: Sequence[str]) -> CommandResult:
        lines = self.files[words[words.index("-r") + 1]].split("\n")
        if any({*pair} <= {*lines} for pair in self.pairs):
            message = f"error: because {' and '.join(self.named)} exclude each other hint: left"
            return CommandResult(argv=("uv",), exit_code=1, output=message, duration_ms=1)
        return super().run(words)


@pytest.mark.parametrize("named", [["bb", "aa"], ["bb", "aa", "dd"], ["dd"], ["other"]])
def test_of_lines_that_exclude_each_other_the_first_is_installed(named: list[str]) -> None:
    uv = Contradicting([("bb", "aa"), ("bb", "dd")], named)
    source = Source("requirements.txt", ("bb", "aa", "dd", "left"))
    installed = InstallLadder(InstallPlan((), lambda: [source]), uv.run, uv.write).run()
    assert [line for line, _ in installed.declined] == ["aa", "dd"]
    assert {"bb", "left"} <= uv.installed


def test_the_work_is_bounded_and_what_was_not_tried_is_named() -> None:
    names = [f"name-{number}" for number in range(400)]
    uv = Registry(frozenset(names))
    found = InstallLadder(
        InstallPlan((), lambda: [Source("r", tuple(names))]), uv.run, uv.write
    ).run()
    assert {line for line, _ in found.declined} == set(names)
    assert "not tried" in found.declined[-1][1]
    assert len(uv.runs) <= 2 * MAX_TRIES
    assert found.level is Level.METADATA


def test_of_a_release_that_can_not_be_had_another_is_taken_and_told() -> None:
    uv = Registry(frozenset({"left==1"}))
    source = Source("requirements.txt", ("left==1", "right==2"))
    found = InstallLadder(InstallPlan((), lambda: [source]), uv.run, uv.write).run()
    assert uv.installed == {"left", "right==2"}
    assert found.declined == (
        ("left==1", "left==1: no wheel of it; another release of it is installed"),
    )


def test_a_later_way_counts_and_the_earlier_one_is_told() -> None:
    uv = Registry(frozenset({"left==1"}))
    first = InstallWay("first", (["pip", "install", "-r", str(uv.write("left==1"))],))
    second = InstallWay("second", (["pip", "install", "-r", str(uv.write("left==2"))],))
    found = InstallLadder(InstallPlan((first, second), tuple), uv.run, uv.write).run()
    assert found.level is Level.EVERYTHING
    assert found.declined == (("first", "left==1: no wheel of it"),)


def test_an_extra_of_another_package_is_not_the_projects_own() -> None:
    extras = {"toml": ["tomli"], "test": ["coverage[toml]", "app[toml]"]}
    assert list(of_extra(extras, "test", "app")) == ["coverage[toml]", "tomli"]


def test_a_runner_is_put_beside_what_is_declared() -> None:
    uv = Registry()
    found = InstallLadder(InstallPlan((), tuple, runner="pytest"), uv.run, uv.write).run()
    assert uv.installed == {"pytest"}
    assert (found.level, found.declined) == (Level.EVERYTHING, ())


def test_what_every_environment_had_is_put_beside_and_not_told_where_it_can_not_be() -> None:
    for bad, there in (
        (frozenset[str](), {"left", "setuptools"}),
        (frozenset({"setuptools"}), {"left"}),
    ):
        uv = Registry(bad)
        steps = (InstallWay("all", (["pip", "install", "-r", str(uv.write("left"))],)),)
        found = InstallLadder(
            InstallPlan(steps, tuple, beside=("setuptools",)), uv.run, uv.write
        ).run()
        assert (uv.installed, found.declined, found.level) == (there, (), Level.EVERYTHING)


def test_a_registry_that_does_not_answer_is_no_reason_to_install_less() -> None:
    message = "error sending request for url (https://index.example/simple/left/)"
    uv = Registry(frozenset({"left"}), answer=message)
    sources = [Source("r", ("left", "right==1")), Source("s", ("far[x]>2; python_version > '3'",))]
    with pytest.raises(ToolFailedError) as caught:
        InstallLadder(InstallPlan((), lambda: sources), uv.run, uv.write).run()
    # Whichever is asked for first: the one that only this index has may be another.
    reported = "uv could not reach its registry index.example, asked for left, right, far: "
    assert caught.value.problem.startswith(reported)


def test_for_a_runner_that_nobody_declared_it_is() -> None:
    uv = Registry(frozenset({"pytest"}), answer="error sending request")
    found = InstallLadder(InstallPlan((), tuple, runner="pytest"), uv.run, uv.write).run()
    assert [line for line, _ in found.declined] == ["pytest"]


def test_the_reason_is_uvs_own_without_what_it_draws() -> None:
    message = (
        "  \u00d7 No solution found when resolving dependencies:\n"
        "  ╰─▶ Because coverage==5.0.4 has no usable wheels, your requirements are\n"
        "      unsatisfiable.\n\n      hint: Wheels are required for `coverage`"
    )
    assert reason(message) == (
        "Because coverage==5.0.4 has no usable wheels, your requirements are unsatisfiable."
    )


@pytest.mark.parametrize("but_for", [False, True])
def test_a_patched_tree_is_made_in_its_base_commits_setting_first(but_for: bool) -> None:
    day = [Setting(Path(f"/bin/python3.{minor}"), "2023-12-18") for minor in (9, 10)]
    settings = [*day, *(replace(one, but_for=True) for one in day), Setting(day[0].python)]
    meant = settings[3] if but_for else settings[1]
    how = (*meant.how, *(["but for ffmpy"] if but_for else []))
    alike, others = as_base(settings, Installed(Level.EVERYTHING, how=how))
    assert alike == [meant]
    assert others == [one for one in settings if one != meant]
