"""Vulnerabilities of a repository: installed packages, looked up at an OSV API (ADR-0133)."""
