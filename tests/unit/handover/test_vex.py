"""VEX: valid in both formats, and ``fixed`` only where a gate has seen the flaw gone."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion

from fallback_audit.vocabulary import GateStatus, ProofLevel
from fallback_tier.advisory import Advisory, Staying, bundle, parse_advisory
from fallback_tier.fix_result import Verified
from fallback_tier.handover.vex import Statement, cyclonedx, openvex, package_url, product_of
from fallback_tier.outcome import DependencyBump
from tests.unit.handover.verified import (
    BASE,
    PROOF,
    RESOLVED,
    TESTS,
    advisory,
    gate,
    remediation,
    verified,
)

pytestmark = pytest.mark.xdist_group("cyclonedx")

AT = datetime(2026, 11, 22, 12, tzinfo=UTC)
COMMIT = "c" * 40


def statement(
    result: Verified, about: Advisory | None = None, commit: str | None = None
) -> Statement:
    about = about or advisory()
    product = product_of(
        result.application, repository="shop", base_commit=BASE, ecosystem="npm", commit=commit
    )
    return Statement(result, about, product, "0.1.0", AT)


def problems_of(document: dict[str, Any]) -> list[str]:
    """What OpenVEX 0.2.0 demands of a document and of each of its statements."""
    found = [
        key
        for key in ("@context", "@id", "author", "timestamp", "version")
        if not document.get(key)
    ]
    for stated in document["statements"]:
        if not stated["vulnerability"].get("name"):
            found.append("vulnerability")
        if stated["status"] not in {"not_affected", "affected", "fixed", "under_investigation"}:
            found.append(stated["status"])
        if stated["status"] == "affected" and not stated.get("action_statement"):
            found.append("action_statement")
        found += [
            "product" for product in stated["products"] if not product["@id"].startswith("pkg:")
        ]
    return found


def schema_problem(document: dict[str, Any]) -> object:
    """By the schema that CycloneDX publishes."""
    # 1.4 s of grammars, which every worker would build to collect this module.
    from cyclonedx.validation.json import JsonStrictValidator

    return JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(document))


RESULTS = {
    "resolved tree": (verified(RESOLVED, TESTS, remediation=remediation()), True),
    "proved source": (verified(PROOF, TESTS), True),
    "tests alone": (verified(TESTS), False),
    "a tree that no gate looked at": (
        verified(
            gate("not_vulnerable", GateStatus.SKIPPED), TESTS, proof_level=ProofLevel.RESOLVED_TREE
        ),
        False,
    ),
    "pins": (verified(gate("not_vulnerable", proof_level=ProofLevel.PINS), TESTS), False),
}


@pytest.mark.parametrize("name", RESULTS)
def test_both_formats_are_valid_and_say_the_same(name: str) -> None:
    result, fixed = RESULTS[name]
    stated = statement(result)
    document, cyclone = openvex(stated), cyclonedx(stated)
    assert problems_of(document) == []
    assert schema_problem(cyclone) is None
    assert document["statements"][0]["status"] == ("fixed" if fixed else "under_investigation")
    flaw = cyclone["vulnerabilities"][0]
    assert flaw["analysis"]["state"] == ("resolved" if fixed else "in_triage")
    assert flaw["affects"][0]["versions"][0]["status"] == ("unaffected" if fixed else "unknown")
    assert document["@id"] == cyclone["serialNumber"]


def test_the_validators_can_fail() -> None:
    document = openvex(statement(verified(TESTS)))
    document["statements"][0]["status"] = "solved"
    assert problems_of(document) == ["solved"]
    cyclone = cyclonedx(statement(verified(TESTS)))
    cyclone["vulnerabilities"][0]["analysis"]["state"] = "fixed"
    assert schema_problem(cyclone) is not None


def test_the_product_is_never_a_release() -> None:
    application = verified(RESOLVED, remediation=remediation()).application
    options: dict[str, Any] = {"repository": "shop", "base_commit": BASE, "ecosystem": "npm"}
    assert product_of(application, **options).version.startswith(f"{BASE}+patch.")
    committed = product_of(application, **options, commit=COMMIT)
    assert committed.purl == f"pkg:generic/shop@{COMMIT}"
    assert [part.purl for part in committed.components] == ["pkg:npm/%40scope/left@2.0.0"]


def test_what_left_the_tree_is_no_component() -> None:
    application = verified(remediation=remediation(after=None)).application
    product = product_of(application, repository="r", base_commit=BASE, ecosystem="npm")
    assert product.components == ()


def test_a_models_bump_is_a_component() -> None:
    plan = DependencyBump(package="Flask_Login", version="0.6.3")
    application = verified(plan=plan).application
    product = product_of(application, repository="r", base_commit=BASE, ecosystem="PyPI")
    assert [part.purl for part in product.components] == ["pkg:pypi/flask-login@0.6.3"]


@pytest.mark.parametrize(
    ("ecosystem", "name", "url"),
    [
        ("npm", "left", "pkg:npm/left@1.0.0"),
        ("npm", "@a/b", "pkg:npm/%40a/b@1.0.0"),
        ("PyPI", "zope.interface", "pkg:pypi/zope.interface@1.0.0"),
    ],
)
def test_package_urls(ecosystem: str, name: str, url: str) -> None:
    assert package_url(ecosystem, name, "1.0.0") == url


def flaw(name: str, alias: str) -> Advisory:
    affected = [{"package": {"ecosystem": "npm", "name": name}, "versions": ["1.0.0"]}]
    raw = {"id": f"GHSA-{name}", "aliases": [alias], "affected": affected}
    return parse_advisory(json.dumps(raw).encode(), "test")


def test_a_bundle_is_a_statement_each() -> None:
    both = bundle([flaw("left", "CVE-1"), flaw("right", "CVE-2")])
    stated = statement(verified(RESOLVED, TESTS), both)
    reported = [
        (s["vulnerability"]["name"], s["vulnerability"]["aliases"])
        for s in openvex(stated)["statements"]
    ]
    assert reported == [("GHSA-left", ["CVE-1"]), ("GHSA-right", ["CVE-2"])]
    assert schema_problem(cyclonedx(stated)) is None


def test_the_same_fix_has_the_same_identifier_and_another_patch_another() -> None:
    first, again = statement(verified(TESTS)), statement(verified(TESTS))
    other = statement(verified(TESTS, patch_sha256="1" * 64))
    assert first.identifier == again.identifier != other.identifier


def test_gates_without_a_sandbox_are_told() -> None:
    reported = replace(statement(verified(TESTS)), sandboxed=False)
    name = reported.advisory.id
    assert "passed without a sandbox: " in reported.grounds(name)
    assert "passed in a sandbox: " in statement(verified(TESTS)).grounds(name)


def test_what_is_fixed_in_part_is_not_said_to_be_fixed() -> None:
    """Two advisories in one proved patch: something of the second one stays."""
    two = bundle([flaw("left", "CVE-1"), flaw("right", "CVE-2")])
    staying = (Staying(advisory_id="GHSA-right", package="right"),)
    stated = statement(verified(RESOLVED, TESTS), two.model_copy(update={"staying": staying}))
    whole, part = openvex(stated)["statements"]
    assert (whole["status"], part["status"]) == ("fixed", "under_investigation")
    assert "It is fixed in part" in part["status_notes"]
    assert "in part" not in whole["status_notes"]
    document = cyclonedx(stated)
    states = [one["analysis"]["state"] for one in document["vulnerabilities"]]
    assert states == ["resolved", "in_triage"]
    ends = [one["affects"][0]["versions"][0]["status"] for one in document["vulnerabilities"]]
    assert ends == ["unaffected", "affected"]
    assert schema_problem(document) is None


def test_a_statement_names_the_packages_of_its_advisory_alone() -> None:
    """Of a patch that raises two packages, a reader takes each that is named for one that had the flaw."""
    (move,) = remediation().moves
    moves = tuple(move.model_copy(update={"package": name}) for name in ("left", "right"))
    made = remediation().model_copy(update={"moves": moves})
    both = bundle([flaw("left", "CVE-1"), flaw("right", "CVE-2")])
    stated = statement(verified(RESOLVED, TESTS, remediation=made), both)
    parts = [one["products"][0]["subcomponents"] for one in openvex(stated)["statements"]]
    assert parts == [[{"@id": "pkg:npm/left@2.0.0"}], [{"@id": "pkg:npm/right@2.0.0"}]]
