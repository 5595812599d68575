"""A fix as a Temporal workflow: its steps are activities on the worker that has it open (ADR-0086)."""
