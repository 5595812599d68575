"""``fallback-tier plan``, ``fix`` and ``resume``: a patch, proved."""
