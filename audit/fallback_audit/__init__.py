"""The audit trail of fallback-tier: event vocabulary, hash chain, evidence, verification.

This package is the floor: it imports nothing else of ours, so it owns the words that events use.
"""
