"""Splitting of a record by its structure, and the choice of what a prompt shows of it (ADR-0019)."""
