"""The Python ladder (ADR-0016): what projects share, and those without a lock."""
