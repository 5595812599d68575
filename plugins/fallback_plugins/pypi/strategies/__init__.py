"""The Python ladder (ADR-0016): the parts that projects share, and projects without a lock."""
