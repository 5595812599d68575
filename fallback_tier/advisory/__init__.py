"""Advisories: OSV records and scanner reports as input, the range algorithm, version order."""

from fallback_tier.advisory.bundles import AdvisoryBundle as AdvisoryBundle
from fallback_tier.advisory.bundles import Staying as Staying
from fallback_tier.advisory.bundles import bundle as bundle
from fallback_tier.advisory.bundles import lets_stay as lets_stay
from fallback_tier.advisory.bundles import one_per_flaw as one_per_flaw
from fallback_tier.advisory.found import CodeFinding as CodeFinding
from fallback_tier.advisory.found import Skipped as Skipped
from fallback_tier.advisory.lookup import AdvisorySource as AdvisorySource
from fallback_tier.advisory.lookup import OsvLookup as OsvLookup
from fallback_tier.advisory.osv import Advisory as Advisory
from fallback_tier.advisory.osv import load_advisory as load_advisory
from fallback_tier.advisory.osv import parse_advisory as parse_advisory
from fallback_tier.advisory.osv_affected import Affected as Affected
from fallback_tier.advisory.ranges import fixed_versions as fixed_versions
from fallback_tier.advisory.ranges import is_affected as is_affected
from fallback_tier.advisory.ranges import lowest_fixed_version as lowest_fixed_version
from fallback_tier.advisory.ranges import lowest_safe as lowest_safe
from fallback_tier.advisory.sources import AdvisorySet as AdvisorySet
from fallback_tier.advisory.sources import load_advisories as load_advisories
from fallback_tier.advisory.versions import canonical_name as canonical_name
from fallback_tier.advisory.versions import compare_versions as compare_versions
from fallback_tier.advisory.versions import sort_key as sort_key
