"""Campaigns: fixes of many advisories in many repositories, run by an engine (ADR-0087)."""
