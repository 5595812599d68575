"""Lock files as text and as trees: uv.lock, Pipfile.lock."""
