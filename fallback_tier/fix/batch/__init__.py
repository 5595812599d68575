"""A batch of several advisories: fixes that gates accept are delivered, the others named (ADR-0051)."""
