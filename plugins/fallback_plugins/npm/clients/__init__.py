"""npm, yarn and pnpm: the real clients, run in scratch folders, and what registries say through them."""
