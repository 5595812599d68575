"""PyPI's gates: what they run, and what they read of it."""
