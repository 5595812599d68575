"""`fallback-tier mcp` as an agent meets it: the SDK's own client, a real process, real repositories."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult

from fallback_tier.cli import exit_codes
from fallback_tier.cli.main import build_parser
from fallback_tier.cli.mcp import command
from fallback_tier.cli.mcp.command import GRACE_S, run
from fallback_tier.cli.mcp.tools import MAX_ANSWER_BYTES, TOOLS
from fallback_tier.errors import ToolFailedError, ToolMissingError
from tests.e2e.command import SCRIPT, Snapshot, repository, snapshot
from tests.e2e.command import run as command_run
from tests.fakes.osv_api import OsvApi, osv_api
from tests.integration.gate_setup import needs_sandbox
from tests.integration.test_cli_scan import CVE, GHSA, record
from tests.kinds import OfKind
from tests.registry import Universe, serve
from tests.waiting import PATIENCE_S, becomes

#: An application whose tests take so long that a fix can be cancelled in the middle of them.
SLOW_S = 6
FILES = {
    "requirements.txt": "left==1.0.0\n",
    "app.py": "import left\n",
    "test_app.py": "import time, unittest\n\n\nclass AppTest(unittest.TestCase):\n"
    "    def test_app(self):\n        import app\n        time.sleep({seconds})\n",
}


@dataclass
class Agent:
    """A root with one repository, and a client.

    All calls of one test with the same options are one conversation, with one server: a start takes longer
    than most calls.
    """

    root: Path
    api: OsvApi
    environ: dict[str, str]
    portal: BlockingPortal
    opened: ExitStack
    steps: list[str] = field(default_factory=list)
    clients: dict[tuple[str | Path, ...], Client] = field(default_factory=dict)

    @property
    def repo(self) -> Path:
        return self.root / "repo"

    def commit(self, seconds: float = 0) -> Snapshot:
        tests = FILES["test_app.py"].format(seconds=seconds)
        repository(self.repo, {**FILES, "test_app.py": tests})
        return snapshot(self.repo)

    @property
    def scan(self) -> list[str]:
        state = str(self.root.parent / "state")
        words = ["scan", str(self.repo), "--no-resolve", "--json", "--state-dir", state]
        return [*words, "--advisory-url", self.api.url]

    def server(self, *options: str | Path) -> StdioServerParameters:
        given = ["--root", self.root, "--state-dir", self.root.parent / "state"]
        given += ["--advisory-url", self.api.url, *options]
        return StdioServerParameters(
            command=str(SCRIPT),
            args=["mcp", *map(str, given)],
            env={**os.environ, **self.environ},
        )

    def talk(self, what: Callable[[Client], Awaitable[None]], *options: str | Path) -> None:
        async def all_of_it() -> None:
            async with Client(self.server(*options)) as client:
                await what(client)

        anyio.run(all_of_it)

    async def ask(self, client: Client, tool: str, **arguments: Any) -> CallToolResult:
        async def progress(_: float, __: float | None, message: str | None) -> None:
            self.steps.append(message or "")

        return await client.call_tool(tool, arguments, progress_callback=progress)

    def call(self, tool: str, *options: str | Path, **arguments: Any) -> CallToolResult:
        """The client holds an answer against the tool's output schema."""
        if options not in self.clients:
            client = self.portal.wrap_async_context_manager(Client(self.server(*options)))
            self.clients[options] = self.opened.enter_context(client)
        return self.portal.call(partial(self.ask, self.clients[options], tool, **arguments))

    def fix(self, *options: str | Path, **arguments: Any) -> Any:
        call = {"repository": str(self.repo), "advisories": [GHSA], **arguments}
        answer = self.call("fix", *options, **call)
        assert not answer.is_error, answer
        return answer.structured_content

    def log(self) -> Any:
        """What is on record, by the command: no server starts for it."""
        words = ("--state-dir", self.root.parent / "state", "--json")
        return command_run("audit", "log", *words).json["fixes"]

    def processes(self) -> list[str]:
        """Command lines of what works for this state folder or repository."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(self.root.parent) in words:
                found.append(words)
        return found


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    universe = Universe()
    for version in ("1.0.0", "1.5.0"):
        universe.pypi("left", version)
    (tmp_path / "root").mkdir()
    with (
        osv_api({GHSA: record()}) as api,
        serve(universe) as served,
        start_blocking_portal() as portal,
        ExitStack() as opened,
    ):
        api.affected["PyPI", "left", "1.0.0"] = [GHSA]
        yield Agent(tmp_path / "root", api, dict(served.environ), portal, opened)


def error(answer: CallToolResult) -> dict[str, str]:
    assert answer.is_error, answer
    found = answer.structured_content["error"]
    assert found["problem"]
    assert found["next_step"]
    assert isinstance(found, dict)
    return found


def test_tools_have_schemas_and_say_what_they_change(agent: Agent) -> None:
    listed = []

    async def look(client: Client) -> None:
        listed.append({tool.name: tool for tool in (await client.list_tools()).tools})

    agent.talk(look)
    agent.talk(look, "--allow-writes")
    dry, writing = listed
    assert set(dry) == {tool.name for tool in TOOLS}
    for tool in dry.values():
        assert tool.output_schema is not None
        assert tool.output_schema["type"] == tool.input_schema["type"] == "object"
        assert tool.input_schema["additionalProperties"] is False
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint is (tool.name != "fix")
        assert tool.annotations.destructive_hint is False
    assert [
        name
        for name, tool in writing.items()
        if tool.annotations is not None and tool.annotations.destructive_hint
    ] == ["fix"]


def test_scan_and_plan(agent: Agent) -> None:
    before = agent.commit()
    found = agent.call("scan", repository="repo").structured_content
    assert found["exit_code"] == exit_codes.VULNERABLE
    assert [(it["id"], it["steps"][0]["after"]) for it in found["findings"]] == [(GHSA, "1.5.0")]
    assert len(agent.steps) >= 2, "each step is reported"
    planned = agent.call("plan", repository=str(agent.repo), advisories=[GHSA]).structured_content
    assert planned["exit_code"] == exit_codes.OK
    assert [it["moves"][0]["package"] for it in planned["fixes"]] == ["left"]
    assert [it["id"] for it in planned["advisory_sources"]] == [GHSA]
    assert snapshot(agent.repo) == before


@pytest.mark.sandbox
def test_a_dry_run_is_proved_and_leaves_the_repository(agent: Agent) -> None:
    needs_sandbox()
    before = agent.commit()
    answer = agent.fix()
    (fix,) = answer["fixes"]
    assert (answer["exit_code"], fix["outcome"]) == (exit_codes.OK, "verified"), answer
    assert (fix["proof_level"], fix["tests_level"]) == ("resolved_tree", "compared")
    assert not answer["delivered"]
    assert "+left==1.5.0" in fix["patch"]
    assert {"tests", "not_vulnerable"} <= {gate["gate"] for gate in fix["gates"]}
    assert any("tests" in step for step in agent.steps)
    assert snapshot(agent.repo) == before
    shown = agent.call("audit_show", fix_id=fix["fix_id"]).structured_content
    assert {"FixStarted", "FixVerified"} <= {event["kind"] for event in shown["events"]}
    log = agent.call("audit_log").structured_content["fixes"]
    assert [it["outcome"] for it in log] == [shown["transitions"][0]["outcome"]]
    verified = agent.call("audit_verify").structured_content
    assert (verified["ok"], verified["exit_code"]) == (True, exit_codes.OK)
    assert agent.call("review_list").structured_content["questions"] == []
    assert error(agent.call("review_show", fix_id=fix["fix_id"]))["code"] == "input"


@pytest.mark.sandbox
def test_the_patch_is_applied_only_if_writing_was_allowed(agent: Agent) -> None:
    needs_sandbox()
    before = agent.commit()
    call = {"repository": str(agent.repo), "advisories": [GHSA], "apply": True}
    refused = error(agent.call("fix", **call))
    assert (refused["code"], refused["kind"]) == ("configuration", "writes_not_allowed")
    assert snapshot(agent.repo) == before
    assert not (agent.root.parent / "state" / "audit.db").exists(), "nothing was begun"
    answer = agent.fix("--allow-writes", apply=True)
    assert answer["delivered"]
    assert (agent.repo / "requirements.txt").read_text() == "left==1.5.0\n"


@pytest.mark.sandbox
def test_writing_must_be_asked_for(agent: Agent) -> None:
    """Here with two advisories, which are planned together."""
    needs_sandbox()
    before = agent.commit()
    agent.api.records[CVE] = record(CVE)
    answer = agent.fix("--allow-writes", advisories=[GHSA, CVE])
    assert not answer["delivered"]
    assert snapshot(agent.repo) == before
    (fix,) = answer["fixes"]
    assert (fix["outcome"], set(fix["advisory_ids"])) == ("verified", {GHSA, CVE})
    assert {it["id"]: it["outcome"] for it in answer["advisories"]} == {GHSA: "fixed", CVE: "fixed"}


async def _in_the_tests(agent: Agent) -> None:
    """Return once the project's tests run."""
    with anyio.fail_after(4 * PATIENCE_S):
        while not any("gate:tests" in step for step in agent.steps):
            await anyio.sleep(0.05)
        while not any("bwrap" in words for words in agent.processes()):
            await anyio.sleep(0.05)


@pytest.mark.sandbox
def test_a_cancelled_fix_ends_and_can_be_resumed(agent: Agent) -> None:
    needs_sandbox()
    before = agent.commit(SLOW_S)

    async def cancel(client: Client) -> None:
        async with anyio.create_task_group() as group:

            async def fix() -> None:
                await agent.ask(client, "fix", repository="repo", advisories=[GHSA])
                raise AssertionError("it was not cancelled")

            group.start_soon(fix)
            await _in_the_tests(agent)
            group.cancel_scope.cancel()
        # The server is still there, and answers.
        with anyio.fail_after(GRACE_S):
            while any("followed" in words for words in agent.processes()):
                await anyio.sleep(0.1)
        assert not any("bwrap" in words for words in agent.processes())
        log = (await agent.ask(client, "audit_log")).structured_content["fixes"]
        assert [it["outcome"] for it in log] == ["open"]

    agent.talk(cancel)
    assert snapshot(agent.repo) == before
    (fix,) = agent.log()
    answer = agent.fix(resume=fix["fix_id"])
    (ended,) = answer["fixes"]
    assert (ended["fix_id"], ended["outcome"]) == (fix["fix_id"], "verified")
    assert len(agent.log()) == 1
    assert snapshot(agent.repo) == before


@pytest.mark.sandbox
def test_a_client_that_goes_leaves_nothing_at_work(agent: Agent) -> None:
    needs_sandbox()
    before = agent.commit(SLOW_S)

    async def leave(client: Client) -> None:
        async with anyio.create_task_group() as group:

            async def fix() -> None:
                with pytest.raises(MCPError):
                    await agent.ask(client, "fix", repository="repo", advisories=[GHSA])

            group.start_soon(fix)
            await _in_the_tests(agent)
            raise ConnectionAbortedError

    with pytest.raises(ExceptionGroup):
        agent.talk(leave)
    becomes(lambda: not agent.processes(), "nothing works for the agent")
    assert snapshot(agent.repo) == before
    assert [it["outcome"] for it in agent.log()] == ["open"]


def test_only_what_is_under_a_root_may_be_named(agent: Agent, tmp_path: Path) -> None:
    agent.commit()
    outside = repository(tmp_path / "outside", {"requirements.txt": "left==1.0.0\n"})
    (agent.root / "link").symlink_to(outside)
    secret = tmp_path / "secret.json"
    secret.write_text("{}")

    async def try_all(client: Client) -> None:
        for named in (str(outside), "../outside", "link", "/etc"):
            answer = await agent.ask(client, "scan", repository=named)
            assert error(answer)["kind"] == "outside_roots", named
        for named in (str(secret), "../secret.json"):
            answer = await agent.ask(client, "plan", repository="repo", advisories=[named])
            assert error(answer)["kind"] == "outside_roots", named
        standard_input = await agent.ask(client, "plan", repository="repo", advisories=["-"])
        assert error(standard_input)["code"] == "advisory", (
            "a file of this name, which is not there"
        )
        assert agent.api.batches == []

    agent.talk(try_all)


def test_a_checkout_above_the_root_may_not_be_named(agent: Agent) -> None:
    """A folder means its checkout, which holds more than the user allowed."""
    agent.commit()
    (agent.repo / "part").mkdir()
    answer = agent.call("scan", "--root", agent.repo / "part", repository=str(agent.repo / "part"))
    assert not answer.is_error, "the first root has the checkout"
    alone = replace(agent, root=agent.repo / "part", clients={})
    assert error(alone.call("scan", repository="."))["kind"] == "outside_roots"


def test_errors_are_typed(agent: Agent) -> None:
    agent.commit()

    async def fail(client: Client) -> None:
        wrong = await agent.ask(client, "scan", repository="repo", no_sandbox=True)
        assert error(wrong)["kind"] == "arguments"
        option = await agent.ask(client, "audit_show", fix_id="--help")
        assert error(option)["kind"] == "arguments"
        missing = await agent.ask(client, "audit_show", fix_id="fix-1")
        assert (error(missing)["code"], error(missing)["kind"]) == ("audit_store", "no_such_file")
        no_checkout = await agent.ask(client, "scan", repository=".")
        assert error(no_checkout)["code"] == "repository"
        unknown = await agent.ask(client, "plan", repository="repo", advisories=["CVE-2020-99999"])
        assert error(unknown)["code"] == "advisory_not_found"
        with pytest.raises(MCPError):
            await agent.ask(client, "review_approve", fix_id="fix-1")

    agent.talk(fail)


def test_a_large_answer_is_cut_and_says_so(agent: Agent) -> None:
    """A hundred findings with long summaries: the client holds what is left against the schema."""
    agent.commit()
    names = [f"CVE-2026-{10_000 + number}" for number in range(100)]
    for name in names:
        agent.api.records[name] = record(name, summary="long " * 200)
    agent.api.affected["PyPI", "left", "1.0.0"] = names
    answer = agent.call("scan", repository="repo", resolve=False).structured_content
    assert len(json.dumps(answer, ensure_ascii=False).encode()) <= MAX_ANSWER_BYTES
    (cut,) = [it for it in answer["cut"] if it["field"] == "findings"]
    assert (cut["shown"], cut["total"]) == (len(answer["findings"]), len(names))
    assert len(answer["findings"]) >= 5


@contextmanager
def talking(agent: Agent, tool: str, **arguments: Any) -> Iterator[subprocess.Popen[str]]:
    """A server that was asked to call a tool, without the SDK's client."""
    client = {"name": "test", "version": "1"}
    began = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
    asked: list[dict[str, Any]] = [
        {"method": "initialize", "id": 1, "params": began},
        {"method": "notifications/initialized"},
        {
            "method": "tools/call",
            "id": 2,
            "params": {"name": tool, "arguments": arguments, "_meta": {"progressToken": 1}},
        },
    ]
    server = agent.server()
    with subprocess.Popen(
        [server.command, *server.args],
        env=server.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None
        for message in asked:
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        process.stdin.flush()
        try:
            yield process
        finally:
            process.kill()


def test_nothing_but_the_protocol_is_printed(agent: Agent) -> None:
    agent.commit()
    with talking(agent, "scan", repository="repo", resolve=False) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        lines: list[Any] = []
        while not any(it.get("id") == 2 for it in lines):
            lines.append(json.loads(process.stdout.readline()))
        process.stdin.close()
        lines += [json.loads(line) for line in process.stdout]
        assert process.wait(PATIENCE_S) == exit_codes.OK
    assert all(it["jsonrpc"] == "2.0" for it in lines)
    (answer,) = [it["result"] for it in lines if it.get("id") == 2]
    assert answer["structuredContent"]["exit_code"] == exit_codes.VULNERABLE
    assert json.loads(answer["content"][0]["text"]) == answer["structuredContent"]


@pytest.mark.sandbox
def test_a_signal_ends_the_server_and_its_calls(agent: Agent) -> None:
    """With its input still open; a call that is at work ends as a cancelled one does."""
    needs_sandbox()
    before = agent.commit(SLOW_S)
    with talking(agent, "fix", repository="repo", advisories=[GHSA]) as process:
        assert process.stdout is not None
        while "gate:tests" not in (line := process.stdout.readline()):
            assert line, "the server has ended"
        becomes(lambda: any("bwrap" in words for words in agent.processes()), "the tests run")
        process.terminate()
        assert process.wait(PATIENCE_S) == -signal.SIGTERM
        becomes(lambda: not agent.processes(), "nothing works for the agent", patience_s=GRACE_S)
    assert snapshot(agent.repo) == before
    assert [it["outcome"] for it in agent.log()] == ["open"]


@pytest.mark.parametrize(
    ("limit", "value", "kind"),
    [("MAX_OUTPUT_BYTES", 10, "output_too_large"), ("MAX_CALL_S", 0.01, "too_long")],
)
def test_a_command_that_passes_a_limit_is_ended(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, limit: str, value: float, kind: str
) -> None:
    agent.commit()
    monkeypatch.setattr(command, limit, value)
    with pytest.raises(ToolFailedError, check=OfKind(kind)):
        anyio.run(command.run_command, agent.scan, ignore)
    assert agent.processes() == []


def test_a_client_hears_of_a_long_step(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    agent.commit()
    monkeypatch.setattr(command, "HEARTBEAT_S", 0.05)
    for name, text in agent.environ.items():
        monkeypatch.setenv(name, text)
    heard = []

    async def report(step: str) -> None:
        heard.append(step)

    code, document = anyio.run(command.run_command, agent.scan, report)
    assert (code, "error" in document) == (exit_codes.VULNERABLE, False), document
    assert sum(step.startswith("starting (") for step in heard) >= 2


async def ignore(_: str) -> None:
    """For who follows nothing."""


def test_a_root_must_be_a_folder(agent: Agent) -> None:
    done = subprocess.run(
        [SCRIPT, "mcp", "--root", agent.root / "none"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == exit_codes.BAD_INPUT
    assert done.stdout == ""


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(ToolMissingError, check=OfKind("extra_missing")) as missing:
        run(build_parser().parse_args(["mcp"]))
    assert "fallback-tier[mcp]" in missing.value.next_step
