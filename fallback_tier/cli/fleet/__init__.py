"""``fallback-tier fleet``: campaigns."""
