"""OSV advisories: the record, the range algorithm, version order."""

from fallback_tier.advisory.osv import Advisory, Affected, load_advisory, parse_advisory
from fallback_tier.advisory.ranges import fixed_versions, is_affected, lowest_fixed_version
from fallback_tier.advisory.versions import canonical_name, compare_versions, sort_key

__all__ = [
    "Advisory",
    "Affected",
    "canonical_name",
    "compare_versions",
    "fixed_versions",
    "is_affected",
    "load_advisory",
    "lowest_fixed_version",
    "parse_advisory",
    "sort_key",
]
