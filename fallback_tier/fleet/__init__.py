"""Campaigns: the fixes of many advisories in many repositories, by an engine (ADR-0087)."""
