"""``fallback-tier review``: questions to people, and their answers."""
