"""Cutting a record on its structure, and choosing what of it a prompt shows (ADR-0019)."""
