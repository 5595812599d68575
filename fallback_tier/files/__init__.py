"""Our folders, trees of files and locks."""
