"""The audit trail of fallback-tier: event vocabulary, hash chain, evidence, verification.

This is the lowest layer: it imports no other package of the project, so it owns the events' vocabularies.
"""
