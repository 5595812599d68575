"""node's own parser beside ours: a text that they read differently is refused, its quirks are not."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.vocabulary import FailureKind, GateStatus
from fallback_tier.errors import ToolFailedError
from fallback_tier.execution import CommandResult
from fallback_tier.gates.builtin.common import PolicyGate, disagreement_with_node
from fallback_tier.sandbox.clients import SubprocessClients
from tests.fakes.ecosystem import FakeEcosystem
from tests.integration.gate_setup import Case, advisory, patched
from tests.kinds import OfKind

BASE = "x = 1\n"
#: Code in a module, a comment in a script; ours takes it for code.
HIDDEN = "x = 1 <!--y, evil()\n"


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    tmp_path = tmp_path_factory.mktemp("case")
    if shutil.which("node") is None:
        pytest.skip("node is not here")
    with patched(tmp_path, {"a.js": BASE}, {"a.js": "x = 2\n"}, about=advisory()) as found:
        return found


def test_what_only_one_parser_sees_is_told(case: Case) -> None:
    message = str(disagreement_with_node(case.context, BASE, HIDDEN))
    assert message.startswith(
        "node reads it otherwise than it looks: '<call_expression>', 'evil', 'y'"
    )
    assert disagreement_with_node(case.context, HIDDEN, f"{HIDDEN}f()\n") is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (BASE, "#!/usr/bin/env node\nreturn (await) => f`a${b}`\n"),
        (
            "import a, {b as c} from 'd'\n",
            "import a, {b} from 'd'\nawait (a)(b)\nimport.meta.url\n",
        ),
        (BASE, "class A { #a = 1; get b() { return this.#a } }\n"),
        (BASE, "l: for (const {a, b: [c]} of d) continue l\n"),
        (BASE, "f = function () { return a?.b ?? /=/.test`${new.target}` }\n"),
        ("", "x = <a/>\n"),
        ("x = <a/>\n", "x = <a b={c}/>\n"),  # JSX: no text of node's
        (BASE, "x = {\n"),
    ],
)
def test_what_both_read_alike_or_neither_reads_is_taken(
    case: Case, before: str, after: str
) -> None:
    assert disagreement_with_node(case.context, before, after) is None


class Broken(SubprocessClients):
    """node in another's words."""

    def __init__(self, *arguments: str) -> None:
        super().__init__()
        self._arguments = arguments

    def run(self, client: str, arguments: Sequence[str], **options: Any) -> CommandResult:
        return super().run(client, self._arguments, **options)


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (("--no-such-option",), "node_failed"),
        (("-e", "process.kill(process.pid, 'SIGSEGV')"), "node_failed"),
        (("-e", "console.log('{')"), "node_answer_malformed"),
        (("-e", ""), "node_answer_malformed"),
    ],
)
def test_a_node_that_breaks_off_is_no_pass(
    case: Case, arguments: tuple[str, ...], kind: str
) -> None:
    context = replace(case.context, clients=Broken(*arguments))
    with pytest.raises(ToolFailedError, check=OfKind(kind)):
        disagreement_with_node(context, BASE, HIDDEN)


def test_a_node_without_a_parser_is_not_asked(case: Case) -> None:
    context = replace(case.context, clients=Broken("-e", "process.exit(42)"))
    assert disagreement_with_node(context, BASE, HIDDEN) is None


def test_a_program_is_nodes_also_where_the_patch_takes_its_first_line(tmp_path: Path) -> None:
    program = f"#!/usr/bin/env node\n{BASE}"
    with patched(
        tmp_path, {"tool": program}, {"tool": f"{BASE}x = <a/>\n"}, about=advisory()
    ) as found:
        verdict = PolicyGate(FakeEcosystem()).judge(found.context)
    assert verdict.failure_kind is FailureKind.POLICY_VIOLATION
    assert "node can't read it" in verdict.detail


def test_what_only_ours_reads_is_refused(case: Case) -> None:
    assert disagreement_with_node(case.context, BASE, "x = 1\nx = <a/>\n") is not None


def test_the_gate_asks_it_of_each_file(tmp_path: Path) -> None:
    if shutil.which("node") is None:
        pytest.skip("node is not here")
    files = {"a.js": BASE, "b.ts": BASE}
    with patched(
        tmp_path, files, {"a.js": "x = 1\nx = <a/>\n", "b.ts": "x = 2\n"}, about=advisory()
    ) as case:
        verdict = PolicyGate(FakeEcosystem()).judge(case.context)
    assert verdict.status is GateStatus.FAILED
    assert verdict.failure_kind is FailureKind.POLICY_VIOLATION
    assert verdict.detail == (
        "'a.js' does not read as it runs: node can't read it as it reads the base commit's."
    )
