"""PYSEC-2026-1475: "…".format, called by a filter, reads what the sandbox keeps from templates."""

from app import Customer, letter

if "Dear A" not in letter("{{ ['A']|each('Dear {}'.format) }}", []):
    raise SystemExit("the filter is gone")
try:
    found = letter("{{ customers|each('{0._password}'.format) }}", [Customer("A")])
except Exception as error:
    found = repr(error)
if "hunter2" in found:
    raise SystemExit("the template read a private attribute")
