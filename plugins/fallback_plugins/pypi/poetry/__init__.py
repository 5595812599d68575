"""Poetry projects, fixed by exact edits of their locks."""
