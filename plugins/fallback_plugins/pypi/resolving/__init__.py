"""The real uv, and what it learns from registries."""
