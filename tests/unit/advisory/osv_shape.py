"""The published shape of an OSV record (schema 1.7), as far as the records of these tests use it.

Written from the specification (https://ossf.github.io/osv-schema/): which fields are required, the form of
times and identifiers, one bound per event, a repository and whole commit hashes for GIT ranges.
"""

from typing import Any

_TIME = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$"}
_COMMIT = r"^(0|[a-f0-9]{40})$"
_BOUNDS = ("introduced", "fixed", "last_affected", "limit")


def _events(version: dict[str, Any]) -> dict[str, Any]:
    one = {
        "type": "object",
        "properties": dict.fromkeys(_BOUNDS, version),
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": False,
    }
    return {"type": "array", "items": one, "contains": {"required": ["introduced"]}}


_RANGE = {
    "type": "object",
    "required": ["type", "events"],
    "properties": {"type": {"enum": ["GIT", "SEMVER", "ECOSYSTEM"]}},
    "if": {"properties": {"type": {"const": "GIT"}}},
    "then": {
        "required": ["repo"],
        "properties": {"events": _events({"type": "string", "pattern": _COMMIT})},
    },
    "else": {"properties": {"events": _events({"type": "string"})}},
}

OSV_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["id", "modified"],
    "additionalProperties": False,
    "properties": {
        "schema_version": {"type": "string"},
        "id": {"type": "string", "pattern": r"^(GHSA|CVE|PYSEC|MAL)-"},
        "modified": _TIME,
        "published": _TIME,
        "withdrawn": _TIME,
        "aliases": {"type": "array", "items": {"type": "string"}},
        "summary": {"type": "string"},
        "details": {"type": "string"},
        "severity": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["type", "score"],
                "properties": {"type": {"enum": ["CVSS_V2", "CVSS_V3", "CVSS_V4"]}},
            },
        },
        "affected": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "package": {"type": "object", "required": ["ecosystem", "name"]},
                    "ranges": {"type": "array", "items": _RANGE},
                    "versions": {"type": "array", "items": {"type": "string"}},
                    "database_specific": {"type": "object"},
                },
            },
        },
        "references": {
            "type": "array",
            "items": {"type": "object", "required": ["type", "url"]},
        },
        "database_specific": {"type": "object"},
    },
}
