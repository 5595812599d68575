"""The files of an attempt: a base, layers over it, and their worktrees."""
