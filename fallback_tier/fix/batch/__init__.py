"""A run over several advisories: what holds is proved and delivered, what doesn't is named (ADR-0051)."""
