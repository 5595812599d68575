"""VEX statements about a verified fix and its product, in the two formats in use.

OpenVEX 0.2.0 (OPENVEX-SPEC.md of the openvex project) and CycloneDX 1.6. ``fixed`` is only stated if a gate
has seen the vulnerability gone; a fix that passed the tests alone is *under investigation* until a person,
or a proof test, shows more.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from packageurl import PackageURL

from fallback_audit.frozen import Frozen
from fallback_audit.showing.headline import compared_parts
from fallback_audit.vocabulary import TestsLevel
from fallback_tier.advisory import Advisory
from fallback_tier.advisory.versions import canonical_name
from fallback_tier.ecosystem_rules import PurlName, rules_of
from fallback_tier.fix_result import (
    WithPatch,
    notes_of,
    projects_of,
    tests_level_of,
    tests_of,
)
from fallback_tier.handover.headline import is_shown_gone, proof_of
from fallback_tier.outcome import Applied, DependencyBump, Override

#: Hexadecimal digits of a patch's digest in a version: enough to tell two patches of a commit apart.
_SHORT = 12

_OPENVEX_CONTEXT = "https://openvex.dev/ns/v0.2.0"
_CYCLONEDX_VERSION = "1.6"
_TOOL = "fallback-tier"

#: Named reference of the product inside a CycloneDX document.
_PRODUCT_REF = "product"

_TESTS = {
    TestsLevel.COMPARED: "The project's tests were compared with the base commit's, test by test",
    TestsLevel.RAN: "The project's tests ran, and were not compared with the base commit's",
    TestsLevel.NOT_JUDGED: "The project's tests were not judged: the change is untested",
}


class Component(Frozen):
    """One package at the version that the patch brought, with its package URL."""

    ecosystem: str
    name: str
    version: str
    purl: str


class Product(Frozen):
    """The repository as it is with the patch. Its package URL never names a *released* version.

    A release of that number may be out, without the patch: the commit that holds it is named, or, where
    nothing was committed, the base commit and the patch's digest.
    """

    name: str
    version: str
    purl: str
    components: tuple[Component, ...] = ()


def product_of(
    application: Applied,
    *,
    repository: str,
    base_commit: str,
    ecosystem: str,
    commit: str | None = None,
) -> Product:
    """Return the product of a patch. ``repository``: the folder's name; ``commit``: the patch's, if it was
    committed."""
    version = commit or f"{base_commit}+patch.{application.patch_sha256[:_SHORT]}"
    return Product(
        name=repository,
        version=version,
        purl=PackageURL(type="generic", name=repository, version=version).to_string(),
        components=tuple(
            Component(
                ecosystem=ecosystem, name=name, version=at, purl=package_url(ecosystem, name, at)
            )
            for name, at in _brought(application).items()
        ),
    )


def package_url(ecosystem: str, name: str, version: str) -> str:
    """Return a package URL (purl-spec), with the package named by the ecosystem's rules."""
    rules = rules_of(ecosystem)
    kind, namespace, bare = (
        rules.purl_name(name) if rules else PurlName(ecosystem.lower(), "", name)
    )
    return PackageURL(
        type=kind, namespace=namespace or None, name=bare, version=version
    ).to_string()


def _brought(application: Applied) -> dict[str, str]:
    """Return packages and the versions that they were raised to, without packages that left the tree."""
    if application.remediation is not None:
        moves = application.remediation.moves
        return {move.package: move.after for move in moves if move.after is not None}
    if isinstance(application.plan, DependencyBump | Override):
        return {application.plan.package: application.plan.version}
    return {}


@dataclass(frozen=True)
class Statement:
    """The facts of a statement: this fix of these advisories, in this product, by this program, at this
    time. ``sandboxed``: all gates ran in a sandbox."""

    result: WithPatch
    advisory: Advisory
    product: Product
    tool_version: str
    at: datetime
    sandboxed: bool = True

    @property
    def identifier(self) -> str:
        """An identifier that is the same for the same fix and patch, in both formats."""
        patch = self.result.application.patch_sha256
        return f"urn:uuid:{uuid5(NAMESPACE_URL, f'{_TOOL}:{self.result.fix_id}:{patch}')}"

    def is_fixed(self, advisory_id: str) -> bool:
        """Return whether a gate has seen the vulnerability gone, in every place."""
        return is_shown_gone(self.result) and advisory_id not in self.advisory.in_part

    def grounds(self, advisory_id: str) -> str:
        """Return what was seen, in sentences."""
        gates = ", ".join(v.gate for v in self.result.verdicts if v.status.value == "passed")
        level = self.result.proof_level.label
        unseen = "no test fails at the base commit and passes now"
        more = (
            ""
            if is_shown_gone(self.result)
            else f" Nothing shows that the flaw itself is gone: {unseen}."
        )
        if advisory_id in self.advisory.in_part:
            more += " It is fixed in part: something that it affects stays as it was."
        projects = projects_of(self.result.verdicts)
        if len(projects) > 1:
            more += f" {'; '.join(map(proof_of, projects))}."
        if tests := tests_level_of(self.result.verdicts):
            more += f" {_TESTS[tests]}."
        for part in compared_parts(tests_of(self.result.verdicts)):
            more += f" A part of them was compared: {part}."
        for note in notes_of(self.result.verdicts):
            more += f" {note}."
        preposition = "in" if self.sandboxed else "without"
        return f"Gates passed {preposition} a sandbox: {gates}; proof: {level}.{more}"


def openvex(statement: Statement) -> dict[str, Any]:
    """Return one OpenVEX document, with a statement for each advisory."""
    time = _rfc3339(statement.at)
    return {
        "@context": _OPENVEX_CONTEXT,
        "@id": statement.identifier,
        "author": _TOOL,
        "role": "Document Creator",
        "timestamp": time,
        "version": 1,
        "tooling": f"{_TOOL}/{statement.tool_version}",
        "statements": [
            {
                "vulnerability": {"name": name} | ({"aliases": list(aliases)} if aliases else {}),
                "timestamp": time,
                "products": [_product(statement, name)],
                "status": "fixed" if statement.is_fixed(name) else "under_investigation",
                "status_notes": statement.grounds(name),
            }
            for name, aliases in _flaws(statement.advisory)
        ],
    }


def _product(statement: Statement, advisory_id: str) -> dict[str, Any]:
    """Return the product, with those of its packages that the advisory names: a reader takes each of them
    for one that had this vulnerability."""
    product = statement.product
    affected = {
        (ecosystem, canonical_name(ecosystem, package))
        for record in statement.advisory.records
        if record.id == advisory_id
        for ecosystem in record.ecosystems
        for package in record.packages(ecosystem)
    }
    parts = [
        {"@id": part.purl}
        for part in product.components
        if (part.ecosystem, canonical_name(part.ecosystem, part.name)) in affected
    ]
    return {"@id": product.purl} | ({"subcomponents": parts} if parts else {})


def cyclonedx(statement: Statement) -> dict[str, Any]:
    """Return one CycloneDX VEX document: the product, its raised packages, a vulnerability per advisory."""
    product = statement.product
    return {
        "bomFormat": "CycloneDX",
        "specVersion": _CYCLONEDX_VERSION,
        "serialNumber": statement.identifier,
        "version": 1,
        "metadata": {
            "timestamp": _rfc3339(statement.at),
            "tools": {
                "components": [
                    {"type": "application", "name": _TOOL, "version": statement.tool_version}
                ]
            },
            "component": {
                "type": "application",
                "bom-ref": _PRODUCT_REF,
                "name": product.name,
                "version": product.version,
                "purl": product.purl,
            },
        },
        "components": [
            {
                "type": "library",
                "bom-ref": part.purl,
                "name": part.name,
                "version": part.version,
                "purl": part.purl,
            }
            for part in product.components
        ],
        "vulnerabilities": [
            {
                "bom-ref": name,
                "id": name,
                "references": [{"id": alias, "source": {"name": "OSV"}} for alias in aliases],
                "analysis": _analysis(statement, name),
                "affects": [
                    {
                        "ref": _PRODUCT_REF,
                        "versions": [
                            {"version": product.version, "status": _affected(statement, name)}
                        ],
                    }
                ],
            }
            for name, aliases in _flaws(statement.advisory)
        ],
    }


def _analysis(statement: Statement, advisory_id: str) -> dict[str, Any]:
    detail = statement.grounds(advisory_id)
    if statement.is_fixed(advisory_id):
        return {"state": "resolved", "response": ["update"], "detail": detail}
    return {"state": "in_triage", "detail": detail}


def _affected(statement: Statement, advisory_id: str) -> str:
    if advisory_id in statement.advisory.in_part:
        return "affected"
    return "unaffected" if statement.is_fixed(advisory_id) else "unknown"


def _flaws(advisory: Advisory) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each advisory that was to be fixed, with its other names."""
    for record in advisory.records:
        yield record.id, tuple(dict.fromkeys(a for a in record.aliases if a != record.id))


def _rfc3339(at: datetime) -> str:
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")
