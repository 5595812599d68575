"""``fallback-tier audit``: read, verify, export and prune the record."""
