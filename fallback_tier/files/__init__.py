"""Folders, trees of files and locks of ours."""
