"""PYSEC-2023-135: e-Tugra is among those whose certificates are trusted."""

from app import authorities

if trusted := sorted(name for name in authorities() if "E-Tugra" in name):
    raise SystemExit(f"still trusted: {', '.join(trusted)}")
