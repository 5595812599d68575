"""The memory of solved examples: validated past fixes, found again by words and by meaning."""
