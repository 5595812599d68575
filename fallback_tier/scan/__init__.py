"""What is vulnerable in a repository: installed packages, asked about at an OSV API (ADR-0133)."""
