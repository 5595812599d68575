"""Declarations in a project's own files, read and edited as text."""
