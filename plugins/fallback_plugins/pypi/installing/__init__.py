"""Installation of a Python project, as complete as what is available (ADR-0039)."""
