"""A fix's steps taken by somebody else's engine: each an extra, none known to what is below (ADR-0086)."""
