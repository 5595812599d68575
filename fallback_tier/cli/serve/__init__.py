"""``fallback-tier serve``: the HTTP service."""
