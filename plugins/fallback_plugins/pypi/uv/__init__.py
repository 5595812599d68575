"""A uv project, fixed by the real uv."""
