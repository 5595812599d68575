"""A Poetry project, fixed by exact edits of its lock."""
