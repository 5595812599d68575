"""Where Python projects hold a package."""
