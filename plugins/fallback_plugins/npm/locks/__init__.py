"""Lock files as text and as trees: package-lock.json, yarn.lock, pnpm-lock.yaml."""
