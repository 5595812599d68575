"""What tools answer is bounded and typed, and the skill for agents is about these tools."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_tier.cli.main import build_parser
from fallback_tier.cli.mcp.tools import (
    MAX_ANSWER_BYTES,
    TOOLS,
    FixesAnswer,
    Permissions,
    bounded,
    encodable,
    fixes_document,
)
from fallback_tier.errors import InputError
from tests.kinds import OfKind

AGENT = Path(__file__).parents[3] / "plugins" / "agent"
(SKILL,) = AGENT.glob("skills/*/SKILL.md")

#: One call of each tool with every argument.
CALLS: dict[str, dict[str, Any]] = {
    "scan": {
        "repository": ".",
        "severity": "high",
        "production": True,
        "paths": ["web", "-x"],
        "resolve": False,
    },
    "plan": {
        "repository": ".",
        "advisories": ["CVE-2026-1234"],
        "paths": ["web"],
        "resolve": False,
    },
    "fix": {
        "repository": ".",
        "advisories": ["CVE-2026-1234"],
        "paths": ["web"],
        "apply": True,
        "resume": "fix-1",
    },
    "review_list": {"answered": True},
    "review_show": {"fix_id": "fix-1"},
    "audit_log": {},
    "audit_show": {"fix_id": "fix-1"},
    "audit_verify": {},
}


def test_the_skill_names_exactly_the_tools() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", SKILL.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == [tool.name for tool in TOOLS]


def test_the_manifest_starts_the_server_and_has_the_skill() -> None:
    manifest = json.loads((AGENT / ".claude-plugin" / "plugin.json").read_text(encoding="utf-8"))
    (server,) = manifest["mcpServers"].values()
    assert server["command"] == "fallback-tier"
    assert build_parser().parse_args(server["args"]).command == "mcp"
    head = re.match(r"---\nname: (\S+)\ndescription: (.+)\n---\n", SKILL.read_text("utf-8"))
    assert head is not None
    assert head[1] == SKILL.parent.name == manifest["name"]
    assert len(head[2]) <= 1024


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_each_tool_is_a_command(tool: Any, tmp_path: Path) -> None:
    assert set(CALLS[tool.name]) == set(tool.takes.model_fields), "every argument is tried"
    allowed = Permissions(
        roots=(tmp_path,),
        allow_writes=True,
        looking=("--offline", "--advisory-url=https://osv.example", "--allow-host=example.org"),
        state=("--state-dir=/s",),
        record=("--state-dir=/s", "--audit-store=postgresql://x", "--checkpoints=/c", "--keys=/k"),
    )
    arguments = build_parser().parse_args(tool.command(CALLS[tool.name], allowed))
    assert arguments.json
    assert "_".join(filter(None, (arguments.command, getattr(arguments, "verb", "")))) == tool.name
    assert arguments.state_dir == "/s"
    if tool.name == "fix":
        assert (arguments.dry_run, arguments.resume) == (False, "fix-1")
        assert not arguments.no_sandbox


def test_an_answer_that_fits_is_whole() -> None:
    assert bounded({"exit_code": 0, "patch": "x" * 50_000}) == {
        "exit_code": 0,
        "patch": "x" * 50_000,
        "cut": [],
        "cuts_not_named": 0,
    }


def test_of_a_patch_that_is_too_long_nothing_is_shown_and_it_is_named_first() -> None:
    fixes = [{"detail": "d" * 5_000, "patch": "p" * 5_400} for _ in range(25)]
    answer = bounded({"exit_code": 0, "fixes": fixes})
    shown = [one["patch"] for one in answer["fixes"]]
    assert set(shown) <= {"", "p" * 5_400}
    patches = [cut for cut in answer["cut"] if cut["field"].endswith(".patch")]
    assert answer["cut"][: len(patches)] == patches
    assert answer["cuts_not_named"] + len(answer["cut"]) >= shown.count("")


@given(st.integers(0, 3_000), st.sampled_from(["", "x", "ü" * 300, "\u2028" * 4_000]))
def test_a_large_answer_is_cut_at_named_places(count: int, text: str) -> None:
    document = {"exit_code": 0, "findings": [{"id": n, "summary": text} for n in range(count)]}
    answer = bounded(document)
    assert len(json.dumps(answer, ensure_ascii=False).encode()) <= MAX_ANSWER_BYTES
    kept = len(answer["findings"])
    cuts = {cut["field"]: cut for cut in answer["cut"]}
    if kept < count:
        assert (cuts["findings"]["shown"], cuts["findings"]["total"]) == (kept, count)
    for number, finding in enumerate(answer["findings"]):
        assert text.startswith(finding["summary"])
        if finding["summary"] != text and number == 0:
            assert cuts["findings.0.summary"]["total"] == len(text)


def test_half_a_surrogate_pair_is_replaced() -> None:
    """What a command escapes, the protocol's UTF-8 can't say."""
    given = json.loads(r'{"a": ["x\ud800y", "\ud83d\ude00"], "\udfff": 1}')
    assert encodable(given) == {"a": ["x?y", "\U0001f600"], "?": 1}


def test_an_answer_that_cannot_be_cut_is_an_error() -> None:
    document = {f"name{number}": "x" * 200 for number in range(1_000)}
    with pytest.raises(InputError, check=OfKind("answer_too_large")):
        bounded(document)


REFUSED = {
    "outcome": "refused",
    "fix_id": "fix-1",
    "advisory_id": "CVE-2026-1234",
    "attempts": 1,
    "verdicts": [],
    "reason": "no_fixed_version",
    "sentence": "No release fixes it.",
}


def test_one_fix_and_several_have_the_same_form() -> None:
    ends: dict[str, Any] = {"delivered": False, "exit_code": 4, "commit": None, "report": None}
    part = {
        **REFUSED,
        "advisory_ids": ["CVE-2026-1234"],
        "ecosystem": "npm",
        "delivered": False,
        "held_back": None,
    }
    alone = fixes_document({**REFUSED, **ends, "fixes": [part]})
    several = fixes_document({**ends, "fixes": [part], "advisories": [], "left": []})
    assert alone == several
    assert alone["fixes"][0]["sentence"] == REFUSED["sentence"]
    jsonschema.validate(alone, FixesAnswer.model_json_schema(mode="serialization"))


def test_a_fix_that_is_held_back_is_not_delivered() -> None:
    """Its own headline is the command's (``batch_report``), which does not call it fixed."""
    part = {
        **REFUSED,
        "outcome": "verified",
        "advisory_ids": ["CVE-2026-1234"],
        "headline": "not delivered: CVE-2026-1234 is not fixed in PyPI.",
        "held_back": "CVE-2026-1234 is not fixed in PyPI.",
        "delivered": True,
    }
    document = {"delivered": True, "exit_code": 4, "commit": None, "report": None, "fixes": [part]}
    (fix,) = fixes_document(document)["fixes"]
    assert (fix["delivered"], fix["held_back"]) == (False, part["held_back"])
