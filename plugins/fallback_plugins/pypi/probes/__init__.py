"""Programs for a target's Python, and the reader of their reports."""
