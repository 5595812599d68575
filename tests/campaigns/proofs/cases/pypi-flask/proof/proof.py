"""PYSEC-2023-62: a page that does not use the session refreshes its cookie, and a cache may keep it."""

from app import app

client = app.test_client()
client.get("/in")
headers = client.get("/news").headers
if "Set-Cookie" in headers and "Cookie" not in headers.get("Vary", ""):
    raise SystemExit("a cache would give this session to everybody")
