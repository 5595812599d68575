"""End to end: what breaks a rule is found in a real store by `audit verify`, and by that rule's name.

The mutants are those of ``tests.unit.audit.generated``: made from the table, one for each rule.
"""

import json
import shutil
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.contract.table import ALL_RULES, RULES
from fallback_audit.events import SandboxDisabled
from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.ports import Record, Scope
from fallback_tier.cli import exit_codes
from fallback_tier.cli.main import main
from fallback_tier.wiring.trail import RecordSettings, evidence_dir, open_bare
from tests.unit.audit import generated as g
from tests.unit.audit.trails import TEXTS, fix_started

#: One worker: keys and evidence are made once.
pytestmark = pytest.mark.xdist_group("contract-mutants")

#: They are about tombstones and segments, of which these stores have none: verify says that as well.
OF_MAINTENANCE = {rule.id for rule in RULES if rule.of_maintenance}

FILLER = Scope(fix_id="filler", gate_transition_id="t")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys, and the evidence of every trail."""
    place = tmp_path_factory.mktemp("prepared")
    assert main(["audit", "keygen", "--keys", str(place / "keys")]) == exit_codes.OK
    g.corpus()
    evidence = FileEvidenceStore(evidence_dir(place / "state"))
    for text in TEXTS.values():
        evidence.put(text.encode())
    return place


def written(prepared: Path, place: Path, lines: Iterable[g.Line]) -> Path:
    """A state folder with these events, where they stand; another, open fix is in between."""
    state = Path(shutil.copytree(prepared / "state", place / "state"))
    records: list[Record] = []
    for seq, scope, event in lines:
        while len(records) < seq - 1:
            filler = SandboxDisabled(reason="said so")
            begun = any(record.scope == FILLER for record in records)
            records.append(Record(FILLER, filler if begun else fix_started()))
        records.append(Record(scope, event))
    with closing(open_bare(state, RecordSettings(keys=prepared / "keys"))) as store:
        store.append_all(records)
    return state


def verified(
    state: Path, prepared: Path, capsys: pytest.CaptureFixture[str]
) -> tuple[int, dict[str, Any]]:
    """Checkpointed, then verified: the exit code and the report."""
    where = ["--state-dir", str(state), "--keys", str(prepared / "keys")]
    assert main(["audit", "checkpoint", *where]) == exit_codes.OK
    capsys.readouterr()
    code = main(["audit", "verify", *where, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_valid_trails_verify(
    prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines: list[g.Line] = []
    for name, own in g.corpus().items():
        noted = any("Redacted" in line.event.kind for line in own)
        if not (noted or g.is_of_maintenance(own) or g.broken(own)):
            for _, scope, event in own:
                named = scope.model_copy(update={"fix_id": name})
                lines.append(g.Line(len(lines) + 1, named, event))
    code, report = verified(written(prepared, tmp_path, lines), prepared, capsys)
    assert code == exit_codes.OK, report["first_bad"]
    assert report["events"] == len(lines) > 500


@pytest.mark.parametrize("rule", [rule.id for rule in ALL_RULES])
def test_a_mutant_is_found_and_its_rule_named(
    rule: str, prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (breaches,) = (one.breaches for one in ALL_RULES if one.id == rule)
    _, mutant = next(found for breach in breaches for found in g.caught_by(rule, breach))
    code, report = verified(written(prepared, tmp_path, mutant), prepared, capsys)
    assert code == exit_codes.TRAIL_BROKEN
    assert rule in {violation["rule"] for violation in report["contract_violations"]}
    assert not report["checkpoint_problem_count"]
    if rule not in OF_MAINTENANCE:  # nothing else is wrong: the rule alone makes it fail
        assert not report["integrity_problem_count"]
        assert report["first_bad"]["reason"].partition(":")[0] in g.broken(mutant)
