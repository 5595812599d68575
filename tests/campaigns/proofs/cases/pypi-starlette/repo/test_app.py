import asyncio
import tempfile
import unittest
from pathlib import Path

from app import application


def ask(app, path):
    """(status, body) of a GET."""
    sent = []

    async def receive():
        return {"type": "http.request"}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": path, "headers": [], "query_string": b""}
    asyncio.run(app(scope, receive, send))
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent)


class ApplicationTest(unittest.TestCase):
    def test_a_file_is_served(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "a.txt").write_text("hello")
            self.assertEqual(ask(application(folder), "/static/a.txt"), (200, b"hello"))
