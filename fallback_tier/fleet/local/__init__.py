"""The local engine: a bounded number of processes on this machine, one a fix (ADR-0080)."""
