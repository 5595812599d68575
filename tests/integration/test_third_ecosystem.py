"""A third ecosystem, mounted by its entry points alone: no line of core knows it (ADR-0066)."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from fallback_tier import ecosystem_rules, entry_points
from fallback_tier.advisory import is_affected, packages, versions
from fallback_tier.advisory.found import Reported, unstated
from fallback_tier.advisory.osv import advisory_from
from fallback_tier.cli.main import main
from fallback_tier.fix import (
    Configuration,
    Delivery,
    ProgressCallback,
    advisories_to_fix,
    open_fixer,
)
from fallback_tier.handover.vex import package_url
from fallback_tier.patch import policy
from fallback_tier.patch.manifests import manifest_problems
from fallback_tier.planning.concern import canonical_text
from fallback_tier.ports import EcosystemPlugin, OffersCandidates
from tests.e2e.command import Ended, repository, run, snapshot
from tests.toy_ecosystem.mounting import HERE, mount

#: apr is after mar, and aug before sep: neither the alphabet nor a number orders them.
DAYS = ("2024-mar-12", "2024-apr-2", "2024-aug-30", "2024-sep-01-draft", "2024-sep-03")
HELD, STILL_AFFECTED, FIXED = DAYS[0], DAYS[1], DAYS[2]

TESTS = """
. "$ALMANAC/tides.sh"
[ "$(tide)" = high ] || exit 1
echo "1 sayings hold"
"""


def package(day: str) -> str:
    return f"# the tides of {day}\ntide() {{ echo high; }}\n"


def locked(day: str) -> str:
    digest = sha256(package(day).encode()).hexdigest()
    return f"tides {day} https://almanac.example/tides/{day} sha256:{digest}\n"


RECORD = {
    "id": "TOY-2024-1",
    "summary": "The tide can be told to come in twice.",
    "affected": [
        {
            "package": {"ecosystem": "Almanac", "name": "Tides"},
            "ranges": [
                {
                    "type": "ECOSYSTEM",
                    "events": [{"introduced": "0"}, {"fixed": "2024-Aug-30"}],
                }
            ],
            "versions": ["2024-Mar-12"],
        }
    ],
}


@dataclass
class Scenario:
    """A repository of the Almanac's, its registry (a folder), and the command with the plugin installed."""

    place: Path
    env: dict[str, str]

    def command(self, verb: str, *more: str | Path) -> Ended:
        advisory = self.place / "advisory.json"
        given = [self.repo, "--advisory", advisory] if verb in {"plan", "fix"} else []
        return run(verb, *given, *more, "--state-dir", self.place / "state", env=self.env)

    @property
    def repo(self) -> Path:
        return self.place / "repo"


def scenario(place: Path, ecosystem: str | None = None, gates: str | None = None) -> Scenario:
    registry = place / "registry"
    registry.mkdir()
    (registry / "tides.json").write_text(json.dumps({day: package(day) for day in DAYS}))
    (place / "advisory.json").write_text(json.dumps(RECORD))
    repository(
        place / "repo",
        {
            "almanac.list": f"needs tides {HELD}\n",
            "almanac.lock": locked(HELD),
            "today.sh": '. "$ALMANAC/tides.sh"\ntide\n',
            "tests/run.sh": TESTS,
        },
    )
    installed = place / "installed"
    installed.mkdir()
    env = {
        "PYTHONPATH": mount(installed, ecosystem, gates),
        "PATH": f"{HERE / 'bin'}:{os.environ['PATH']}",
        "ALMANAC_REGISTRY": str(registry),
        "HOUSE_SECRET": "for nobody's client",
    }
    return Scenario(place, env)


def kinds(events: list[Mapping[str, Any]], kind: str) -> list[Mapping[str, Any]]:
    return [event for event in events if event["kind"] == kind]


@pytest.mark.sandbox
def test_plan_fix_gates_verified(tmp_path: Path) -> None:
    """From an advisory to a proved patch: version order, names, client, recipe, gates are the plugin's."""
    there = scenario(tmp_path)
    before = snapshot(there.repo)
    planned = there.command("plan", "--json")
    assert planned.code == 0, planned
    (fix,) = planned.json["fixes"]
    (move,) = fix["moves"]
    assert (fix["ecosystem"], fix["proof_level"]) == ("Almanac", "resolved_tree")
    assert (move["package"], move["before"], move["after"]) == ("tides", [HELD], FIXED)
    assert snapshot(there.repo) == before
    reported = there.command("plan", "--no-resolve", "--json").json
    assert reported["fixes"][0]["moves"][0]["after"] == "2024-Aug-30"  # as the record writes it

    vex = tmp_path / "review"
    fixed = there.command("fix", "--json", "--report", vex)
    assert fixed.code == 0, fixed
    assert fixed.json["outcome"] == "verified"
    assert (there.repo / "almanac.list").read_text() == f"needs tides {FIXED}\n"
    assert (there.repo / "almanac.lock").read_text() == locked(FIXED)
    assert f"pkg:almanac/tides@{FIXED}" in "".join(path.read_text() for path in vex.rglob("*.json"))

    shown = there.command("audit", "show", fixed.json["fix_id"], "--json").json["events"]
    verdicts = {it["payload"]["gate"]: it["payload"]["status"] for it in kinds(shown, "GateJudged")}
    names = ["applies", "declared_set", "policy", "capability", "resolves", "not_vulnerable"]
    assert verdicts == dict.fromkeys([*names, "house_rules", "tests"], "passed")
    verified = there.command("audit", "verify", "--json")
    assert verified.code == 0, verified


@pytest.mark.sandbox
def test_gates_judge_what_the_recipe_made(tmp_path: Path) -> None:
    """A recipe that takes the next day, affected still: the plugin's own gate says no, whatever it took."""
    there = scenario(tmp_path, ecosystem="almanac_plugin.careless:build_ecosystem")
    before = snapshot(there.repo)
    assert there.command("plan", "--json").json["fixes"][0]["moves"][0]["after"] == STILL_AFFECTED
    fixed = there.command("fix", "--json")
    assert fixed.code == 3, fixed
    assert fixed.json["outcome"] == "escalated"
    shown = there.command("audit", "show", fixed.json["fix_id"], "--json").json["events"]
    failed = [it["payload"] for it in kinds(shown, "GateJudged")][-1]
    assert (failed["gate"], failed["failure_kind"]) == ("not_vulnerable", "still_vulnerable")
    assert snapshot(there.repo) == before
    assert there.command("audit", "verify").code == 0


def test_its_client_is_missed_in_the_plugins_words(tmp_path: Path) -> None:
    there = scenario(tmp_path)
    there.env["PATH"] = os.environ["PATH"]
    planned = there.command("plan", "--json")
    assert planned.code == 6
    assert "Install the almanac" in planned.json["left"][0]["next_step"]


# --- a plugin's own exceptions ----------------------------------------------------------------------

BROKEN = "almanac_plugin.broken:in_{}"
BROKEN_REPORTING = "almanac_plugin.broken:reporting_gates"

IN_A_PLAN = (
    "rules", "clients", "sort_key", "shared_by_equals", "canonical_name", "caches", "building", "manifests",
    "own_packages", "outline", "select", "apply",
)  # fmt: skip
IN_A_FIX = ("editable_keys", "gates", "judge")

#: What a process knows of what is installed.
CACHES = (
    entry_points.mounted, ecosystem_rules.rules_of, ecosystem_rules.ecosystems, versions.sort_key,
    versions.is_prerelease, policy._dependency_files, policy._forbidden,
)  # fmt: skip


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Scenario]]:
    """Mounts a plugin in this process, for as long as a test takes."""

    def make(**mounted: str) -> Scenario:
        there = scenario(tmp_path, **mounted)
        for name, value in there.env.items():
            monkeypatch.setenv(name, value)
        monkeypatch.syspath_prepend(tmp_path / "installed")
        return there

    for cache in CACHES:
        cache.cache_clear()
    yield make
    for cache in CACHES:
        cache.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "almanac_plugin"]:
        del sys.modules[name]


@pytest.fixture
def here(
    installed: Callable[..., Scenario], capsys: pytest.CaptureFixture[str]
) -> Callable[..., Ended]:
    """Runs one command with a plugin that is mounted in this process."""

    def command(verb: str, **mounted: str) -> Ended:
        there = installed(**mounted)
        before = snapshot(there.repo)
        given = [there.repo, "--advisory", there.place / "advisory.json", "--json"]
        code = main([verb, *map(str, [*given, "--state-dir", there.place / "state"])])
        assert snapshot(there.repo) == before
        return Ended(code, *capsys.readouterr())

    return command


def test_the_how_to_names_every_hook() -> None:
    text = (HERE.parents[1] / "docs" / "ecosystem.md").read_text()
    protocols = (ecosystem_rules.EcosystemRules, EcosystemPlugin, OffersCandidates)
    hooks = [hook for protocol in protocols for hook in entry_points.hooks_of(protocol)]
    assert [hook for hook in hooks if f"`{hook}`" not in text] == []


def test_what_core_asks_of_its_rules(installed: Callable[..., Scenario]) -> None:
    installed()
    order = sorted(DAYS, key=lambda it: versions.sort_key("Almanac", it), reverse=True)
    assert tuple(reversed(order)) == DAYS
    assert not versions.is_orderable("Almanac", "1.0.0")
    assert package_url("Almanac", "tides", FIXED) == f"pkg:almanac/tides@{FIXED}"
    assert packages.from_purl(f"pkg:almanac/tides@{FIXED}") == ("Almanac", "tides", FIXED)
    assert packages.ecosystem_of_file("sub/almanac.lock") == "Almanac"
    assert "lock file" in (policy.recipe_only_reason("sub/ALMANAC.lock") or "")
    assert "manifest" in (policy.recipe_only_reason("almanac.list") or "")
    assert policy.forbidden_reason("almanac.rc")
    assert canonical_text("Almanac", "needs Tides") == "needs tides"


def test_another_spelling_of_a_listed_version_is_that_version(
    installed: Callable[..., Scenario],
) -> None:
    """``2024-Mar-12`` and ``2024-mar-12`` share no text: what may be equal is compared."""
    installed()
    package = {"ecosystem": "Almanac", "name": "tides"}
    record = {"id": "T-1", "affected": [{"package": package, "versions": ["2024-Apr-02"]}]}
    advisory = advisory_from(record, "T-1")
    assert is_affected(advisory, "Almanac", "Tides", "2024-apr-2")
    assert not is_affected(advisory, "Almanac", "tides", HELD)


def test_its_formats_are_judged_by_core(installed: Callable[..., Scenario]) -> None:
    """Nothing from elsewhere, no hash lost, only the keys that may change: of the data that it reads."""
    installed()
    rules = ecosystem_rules.rules_of("Almanac")

    def problems(path: str, before: str, after: str) -> list[str]:
        keys = ("needs",) if path == "almanac.list" else ()
        return list(manifest_problems(path, keys, before, after, rules))

    good = locked(FIXED)
    assert problems("almanac.lock", locked(HELD), good) == []
    (elsewhere,) = problems("almanac.lock", good, good.replace("almanac.example", "moon.example"))
    assert "may not fetch from 'https://moon.example'" in elsewhere
    (unhashed,) = problems("almanac.lock", good + good, good + f"{good.split(' sha')[0]} none\n")
    assert "no hash" in unhashed
    assert problems("almanac.list", "needs tides a\n", "needs tides b\n") == []
    (unread,) = problems("almanac.list", "needs tides a\n", "wants tides b\n")
    assert "can't be parsed" in unread


def test_a_report_that_names_versions_alone(installed: Callable[..., Scenario]) -> None:
    """What it doesn't say is not called safe, by the plugin's order."""
    installed()

    def events(fix: str) -> list[dict[str, str]]:
        found = Reported("X-1", "Almanac", "tides", versions=(HELD,), fixes=(fix,)).record()
        a_range = unstated("Almanac", [found])
        assert a_range["type"] == "ECOSYSTEM"
        return [*a_range["events"]]

    line_ends = versions.next_line("Almanac", "2024-aug-30")
    assert events("2024-aug-30") == [
        {"introduced": "0"},
        {"fixed": "2024-aug-30"},
        {"introduced": line_ends},
    ]
    assert {"fixed": "2023-aug-31"} in events("2023-aug-31")


def blamed(ended: Ended, plugin: str, hook: str) -> Mapping[str, str]:
    """The error names plugin, distribution, entry point and hook; it is of the environment's kind."""
    assert ended.code == 6, ended
    error: dict[str, str] = ended.json["error"]
    assert error["code"] == "plugin"
    started = f"The plugin {plugin!r} of almanac-plugin 1.0 (entry point 'almanac_plugin."
    assert error["problem"].startswith(started), error
    assert f" failed in {hook}: " in error["problem"]
    assert "Repair or uninstall that distribution" in error["next_step"]
    assert "Traceback" not in ended.err
    return error


@pytest.mark.parametrize("hook", IN_A_PLAN)
def test_a_hook_that_raises_in_a_plan(hook: str, here: Callable[..., Ended]) -> None:
    ended = here("plan", ecosystem=BROKEN.format(hook))
    error = blamed(ended, "Almanac", "building the plugin" if hook == "building" else hook)
    assert "LookupError in almanac_plugin.broken, line " in error["problem"]
    assert error["problem"].endswith(": the moon is missing.")


@pytest.mark.sandbox
@pytest.mark.parametrize("hook", IN_A_FIX)
def test_a_hook_that_raises_in_a_fix(hook: str, here: Callable[..., Ended]) -> None:
    ended = here("fix", ecosystem=BROKEN.format(hook))
    error = blamed(ended, "Almanac", "gate 'tests'" if hook == "judge" else hook)
    # Once the plugin is repaired, a fix that began goes on: nothing of it was decided.
    assert ("fallback-tier resume" in error["next_step"]) == (hook != "gates")


@pytest.mark.parametrize("target", ["almanac_plugin.nowhere:x", "almanac_plugin.broken:loading_it"])
def test_an_entry_point_that_can_not_be_loaded(target: str, here: Callable[..., Ended]) -> None:
    blamed(here("plan", ecosystem=target), "Almanac", "loading it")


def test_a_factory_without_rules(here: Callable[..., Ended]) -> None:
    """As plugins were written before there were rules."""
    error = blamed(here("plan", ecosystem="almanac_plugin.broken:fall"), "Almanac", "rules")
    assert "AttributeError" in error["problem"]


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("target", "hook"), [("no_gates", "building its gates"), ("silent_gates", "gate 'silent'")]
)
def test_gates_of_an_entry_point_that_fail(
    target: str, hook: str, here: Callable[..., Ended]
) -> None:
    blamed(here("fix", gates=f"almanac_plugin.broken:{target}"), "scenario", hook)


@pytest.mark.sandbox
def test_gates_have_names_of_their_own(here: Callable[..., Ended]) -> None:
    ended = here("fix", gates="almanac_plugin.broken:gates_of_one_name")
    assert (ended.code, ended.json["error"]["code"]) == (2, "configuration")
    assert "A gate by entry point is called 'resolves'" in ended.json["error"]["problem"]


class GoneError(Exception):
    """Who watches has gone away."""


@pytest.mark.sandbox
def test_who_watches_is_not_the_plugins_fault(installed: Callable[..., Scenario]) -> None:
    """What is raised while a plugin tells what it waits for is raised as it is."""
    there = installed(ecosystem="almanac_plugin.broken:in_nothing", gates=BROKEN_REPORTING)

    def stop(reported: object) -> None:
        if reported == "waiting for the tide":
            raise GoneError

    given = advisories_to_fix([there.place / "advisory.json"])
    configuration = Configuration(state_dir=there.place / "state")
    with (
        pytest.raises(GoneError),
        open_fixer(configuration, given, ProgressCallback(stop)) as fixer,
    ):
        fixer.fix(given, there.repo, Delivery(dry_run=True))


def test_a_person_is_told_as_of_any_error(tmp_path: Path) -> None:
    ended = scenario(tmp_path, ecosystem=BROKEN.format("select")).command("plan")
    assert "The plugin 'Almanac' of almanac-plugin 1.0" in ended.problem
    assert ended.next_step.startswith("Repair or uninstall that distribution")
