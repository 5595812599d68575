"""A stand-in for llama.cpp's server, as a program: /health, and one answer on /v1/messages.

Run by the tests as ``llama-server`` on PATH; it takes the same options. FAKE_* lines of the file that
``--model`` names say how it behaves.
"""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ANSWER = '{"action": "refuse", "reason": "the environment has %s"}'


def events() -> list[dict[str, object]]:
    """One answer, streamed as the Messages API does."""
    usage = {"input_tokens": 3, "output_tokens": 5}
    message = {
        "id": "m", "type": "message", "role": "assistant", "content": [], "model": "fake",
        "stop_reason": None, "stop_sequence": None, "usage": usage,
    }  # fmt: skip
    text = ANSWER % ("a key" if "ANTHROPIC_API_KEY" in os.environ else "no key")
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
    options = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=False))
    wish = Path(options["--model"]).read_bytes().decode("utf-8", "replace")
    if "FAKE_FAIL" in wish:
        sys.exit("the model has an unknown architecture")
    print(f"pid {os.getpid()}", flush=True)
    ThreadingHTTPServer((options["--host"], int(options["--port"])), Handler).serve_forever()


if __name__ == "__main__":
    main()
