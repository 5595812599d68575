"""Pages for operators of the service (docs/portal.md, ADR-0084): they call the same operations as its
routes.
"""
