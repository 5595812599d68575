"""The real uv, and what registries say through it."""
