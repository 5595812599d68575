"""From `pip install` to a proved fix, as a new user of ten public repositories would go."""
