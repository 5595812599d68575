"""Signed checkpoints of the chain: what nobody can take back without the key (ADR-0033)."""
