"""Installing an npm project, the most exact way first (ADR-0039)."""
