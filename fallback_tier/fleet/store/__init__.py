"""Campaigns, their fixes and the providers' buckets, durable: SQLite or PostgreSQL (ADR-0087)."""
