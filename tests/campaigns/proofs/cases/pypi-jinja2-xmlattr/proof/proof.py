"""PYSEC-2026-1474: a key with "/", ">" or "=" in it writes attributes and elements of its own."""

from app import element

try:
    page = element({"x/onload=alert(1)//": "1"})
except ValueError as error:
    print("refused:", error)
else:
    raise SystemExit(f"a key became an attribute: {page}")
