"""Programs for a target's Python, and how their reports are read."""
