"""Advisories: OSV records and scanner reports as input, the range algorithm, version order."""

from fallback_tier.advisory.bundles import (
    AdvisoryBundle,
    Staying,
    bundle,
    lets_stay,
    one_per_flaw,
)
from fallback_tier.advisory.found import CodeFinding, Skipped
from fallback_tier.advisory.osv import Advisory, load_advisory, parse_advisory
from fallback_tier.advisory.osv_affected import Affected
from fallback_tier.advisory.ranges import (
    fixed_versions,
    is_affected,
    lowest_fixed_version,
    lowest_safe,
)
from fallback_tier.advisory.sources import AdvisorySet, load_advisories
from fallback_tier.advisory.versions import canonical_name, compare_versions, sort_key

__all__ = [
    "Advisory",
    "AdvisoryBundle",
    "AdvisorySet",
    "Affected",
    "CodeFinding",
    "Skipped",
    "Staying",
    "bundle",
    "canonical_name",
    "compare_versions",
    "fixed_versions",
    "is_affected",
    "lets_stay",
    "load_advisories",
    "load_advisory",
    "lowest_fixed_version",
    "lowest_safe",
    "one_per_flaw",
    "parse_advisory",
    "sort_key",
]
