"""A stand-in for llama.cpp's server, as a program: /health, and one answer on /v1/messages.

Run by the tests as ``llama-server`` on PATH; it takes the same options, and refuses what the packaged one
refuses. FAKE_* lines of the file that ``--model`` names say how it behaves. Its answer tells what it was
started with.
"""

import argparse
import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def parsed() -> argparse.Namespace:
    """Its options: an unknown one ends it."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for option in ("--model", "--host", "--grammar-file", "--json-schema"):
        parser.add_argument(option)
    for option in ("--port", "--ctx-size", "--parallel"):
        parser.add_argument(option, type=int)
    parser.add_argument("--jinja", action="store_true")
    return parser.parse_args()


OPTIONS = parsed()
GRAMMAR = Path(OPTIONS.grammar_file).read_text() if OPTIONS.grammar_file else "none"


def events() -> list[dict[str, object]]:
    """One answer, streamed as the Messages API does."""
    usage = {"input_tokens": 3, "output_tokens": 5}
    message = {
        "id": "m", "type": "message", "role": "assistant", "content": [], "model": "fake",
        "stop_reason": None, "stop_sequence": None, "usage": usage,
    }  # fmt: skip
    key = "a key" if "ANTHROPIC_API_KEY" in os.environ else "no key"
    reported = f"the environment has {key}; pid {os.getpid()}; grammar: {GRAMMAR}"
    text = json.dumps({"action": "refuse", "reason": reported})
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage},
        {"type": "message_stop"},
    ]


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for event in events():
            self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())

    def log_message(self, *args: object) -> None:
        """Quiet."""


def main() -> None:
    wanted_version = Path(OPTIONS.model).read_bytes().decode("utf-8", "replace")
    if "FAKE_FAIL" in wanted_version:
        sys.exit("the model has an unknown architecture")
    if OPTIONS.json_schema:
        sys.exit("Failed to initialize samplers")
    print(f"pid {os.getpid()}", flush=True)
    ThreadingHTTPServer((OPTIONS.host, OPTIONS.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
