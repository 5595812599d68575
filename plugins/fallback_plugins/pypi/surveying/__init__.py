"""Search for the places of a package in Python projects."""
