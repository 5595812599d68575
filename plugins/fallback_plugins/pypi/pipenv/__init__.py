"""A pipenv project, fixed by exact edits of its lock."""
