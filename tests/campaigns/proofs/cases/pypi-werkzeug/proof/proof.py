"""PYSEC-2026-3417: a field that arrives in many pieces is kept in memory without any bound."""

from app import application
from werkzeug.test import Client

client = Client(application)
if client.post("/", data={"name": "a"}).status_code != 200:
    raise SystemExit("the form is broken")
lines = "xxxxxxxxx\n" * 200_000
form = {"name": lines}
status = client.post("/", data=form, content_type="multipart/form-data").status_code
if status != 413:
    raise SystemExit(f"2 MB went into memory under a bound of 100 kB: {status}")
