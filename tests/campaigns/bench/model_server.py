"""A model that answers at once, on loopback, in the two protocols that the peers and we speak.

Everybody is given the same change of the same file, in the form that their own prompt asks for: ours a
plan (Messages API), mini-swe-agent tool calls, aider a search/replace block (chat completions). So what
is measured is the program around the model. Prints its port, then serves until it is killed.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


class _Handler(BaseHTTPRequestHandler):
    """Three kinds of request, told apart by path and by whether tools are offered."""

    protocol_version = "HTTP/1.1"
    change: dict[str, str]

    def do_POST(self) -> None:
        """Answer a request for a message."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.split("?")[0].endswith("/messages"):
            self._events(_message_events(self._plan()))
        elif asked.get("tools"):
            self._completion(asked, self._tool_call(asked["messages"]))
        else:
            self._completion(asked, {"role": "assistant", "content": self._block()})

    def _plan(self) -> str:
        plan = {"action": "source_edit", "edits": [self.change], "rationale": "", "citations": []}
        return json.dumps(plan)

    def _block(self) -> str:
        path, old, new = self.change["path"], self.change["old"], self.change["new"]
        return f"{path}\n```python\n<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n```\n"

    def _tool_call(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        """The least that does it: one edit, then the word that ends the task."""
        edited = any(message["role"] == "assistant" for message in messages)
        script = (
            "import pathlib; p = pathlib.Path({path!r}); "
            "p.write_text(p.read_text().replace({old!r}, {new!r}))"
        ).format(**self.change)
        command = SUBMIT if edited else f'python3 -c "{script}"'
        call = {"name": "bash", "arguments": json.dumps({"command": command})}
        return {
            "role": "assistant",
            "content": "The path is checked.",
            "tool_calls": [{"id": "call_1", "type": "function", "function": call}],
        }

    def _completion(self, asked: dict[str, Any], message: dict[str, Any]) -> None:
        reason = "tool_calls" if "tool_calls" in message else "stop"
        frame = {"id": "c", "created": 1, "model": asked["model"]}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        if asked.get("stream"):
            chunk = {**frame, "object": "chat.completion.chunk"}
            delta = {"index": 0, "delta": message, "finish_reason": None}
            end = {"index": 0, "delta": {}, "finish_reason": reason}
            lines = [{**chunk, "choices": [choice]} for choice in (delta, end)]
            reported = (
                "".join(f"data: {json.dumps(line)}\n\n" for line in lines) + "data: [DONE]\n\n"
            )
            self._send("text/event-stream", reported)
            return
        choice = {"index": 0, "message": message, "finish_reason": reason}
        answer = {**frame, "object": "chat.completion", "choices": [choice], "usage": usage}
        self._send("application/json", json.dumps(answer))

    def _events(self, events: list[dict[str, Any]]) -> None:
        reported = (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
        self._send("text/event-stream", "".join(reported))

    def _send(self, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base's name)
        """Say nothing."""


def _message_events(text: str) -> list[dict[str, Any]]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": "scripted",
    }
    start = {**message, "stop_reason": None, "stop_sequence": None, "usage": usage}
    return [
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": usage,
        },
        {"type": "message_stop"},
    ]


def main() -> None:
    """Serve the change of the file that is named on the command line."""
    _Handler.change = json.loads(Path(sys.argv[1]).read_text())
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
