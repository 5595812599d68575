"""PYSEC-2026-1790: a pickle that calls pty.spawn passes as safe."""

from app import is_safe

if is_safe(b"cpty\nspawn\n(S'id'\ntR."):
    raise SystemExit("a pickle that starts a program is called safe")
