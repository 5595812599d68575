"""Workers of this machine: a bounded number of processes, one for each fix (ADR-0080, ADR-0139)."""
