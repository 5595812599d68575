"""Pages for operators over the service (docs/portal.md, ADR-0084): they call what its routes call."""
