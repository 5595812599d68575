"""Signed checkpoints of the chain, which can't be changed without the key (ADR-0033)."""
