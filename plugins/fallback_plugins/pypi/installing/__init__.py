"""Installing a Python project, as much of it as can be had (ADR-0039)."""
