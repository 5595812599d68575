"""``fallback-tier examples``: the memory of solved examples."""
