"""A fix as a Temporal workflow: its steps are activities of the worker that has it open (ADR-0086)."""
