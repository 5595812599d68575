"""``fallback-tier keys``: who may call the service."""
