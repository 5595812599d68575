"""package.json and tsconfig.json: read, and edited as text."""
