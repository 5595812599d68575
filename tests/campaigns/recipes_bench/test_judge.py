"""The judge of the recipe cases: nothing lazy, harmful or untrue gets past it."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.vocabulary import RefusalReason
from tests.campaigns.recipes_bench.cases import Case
from tests.campaigns.recipes_bench.edges import Edges, edges
from tests.campaigns.recipes_bench.inventory import Held, held
from tests.campaigns.recipes_bench.judge import Ending, Verdict, judge
from tests.campaigns.recipes_bench.raw import Raw
from tests.campaigns.recipes_bench.report import document, markdown
from tests.campaigns.recipes_bench.reviews import Refusal, Reviews
from tests.campaigns.recipes_bench.safeguards import breaches
from tests.campaigns.recipes_bench.summary import goals
from tests.campaigns.recipes_bench.versions import affecting

_REQUIREMENTS = "# ours\nflask==1.0  # keep\nother==3.0\n"
_FIXED = _REQUIREMENTS.replace("1.0", "1.2")

_MOVE = {"step": "direct_bump", "package": "flask"}


def _record(ecosystem: str, name: str, fixed: str) -> dict[str, Any]:
    events = [{"introduced": "0"}, {"fixed": fixed}]
    return {
        "id": f"OSV-{name}",
        "affected": [
            {
                "package": {"ecosystem": ecosystem, "name": name},
                "ranges": [{"type": "ECOSYSTEM", "events": events}],
            }
        ],
    }


def _case(
    root: Path,
    before: Mapping[str, str],
    expected: Mapping[str, str],
    record: Mapping[str, Any],
    **facts: Any,
) -> Case:
    reported = {
        "ecosystem": "PyPI",
        "package": "flask",
        "expected_is_minimal_bump": True,
        "expected_kind": "exact bytes",
        **facts,
    }
    files = {"case.json": json.dumps(reported), "advisories/one.json": json.dumps(record)}
    files |= {f"before/{path}": text for path, text in before.items()}
    files |= {f"expected/{path}": text for path, text in expected.items()}
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return Case(root)


@pytest.fixture
def minimal(tmp_path: Path) -> Case:
    return _case(
        tmp_path / "minimal",
        {"requirements.txt": _REQUIREMENTS},
        {"requirements.txt": _FIXED},
        _record("PyPI", "Flask", "1.2"),
    )


def _lock(version: str, host: str = "https://one.invalid", **more: str) -> str:
    packages: dict[str, Any] = {"": {"dependencies": {"flask": "^1.0.0"}}}
    for name, held_version in {"flask": version, **more}.items():
        resolved = f"{host}/{name}/-/{name}-{held_version}.tgz"
        packages[f"node_modules/{name}"] = {"version": held_version, "resolved": resolved}
    return json.dumps({"lockfileVersion": 3, "packages": packages}, indent=2) + "\n"


@pytest.fixture
def committed(tmp_path: Path) -> Case:
    """A case that is judged by what is left, not by what people chose."""
    manifest = json.dumps({"dependencies": {"flask": "^1.0.0"}}, indent=2) + "\n"
    return _case(
        tmp_path / "committed",
        {"package.json": manifest, "package-lock.json": _lock("1.0.0", other="2.0.0")},
        {},
        _record("npm", "flask", "1.2.0"),
        ecosystem="npm",
        expected_is_minimal_bump=None,
        expected_kind="what a human committed",
    )


def _fix(case: Case, changes: Mapping[str, str | None], **more: Any) -> Raw:
    raw = Raw(case.name, "fixed", changes=dict(changes), proof_level="pins", moves=[_MOVE])
    return replace(raw, **more)


def _judged(case: Case, changes: Mapping[str, str | None], **more: Any) -> Verdict:
    return judge(case, _fix(case, changes, **more), Reviews())


def test_the_expected_change_is_fixed_and_exact(minimal: Case) -> None:
    verdict = _judged(minimal, {"requirements.txt": _FIXED})

    assert verdict.ending is Ending.FIXED
    assert (verdict.exact_version, verdict.exact_bytes, verdict.line_ratio) == (True, True, 1.0)
    assert all(goal.met for goal in goals([verdict]))


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (_REQUIREMENTS, "nothing changed"),
        (_FIXED.replace("1.2", "1.3"), "another version than expected"),
        (_FIXED.replace("1.2", "1.1"), "another version than expected"),
        (_FIXED.replace("  # keep", ""), "comment lost"),
        (_FIXED.replace("# ours\n", ""), "comment lost"),
        (_FIXED.replace("other==3.0", "other==2.0"), "downgrade"),
        (_FIXED.rstrip("\n"), "formatting lost"),
        (_FIXED.replace("\n", "\r\n"), "formatting lost"),
        ("--index-url https://other.invalid/simple\n" + _FIXED, "registry URL swapped"),
    ],
)
def test_what_is_no_fix_is_a_miss(minimal: Case, text: str, cause: str) -> None:
    verdict = _judged(minimal, {"requirements.txt": text})

    assert (verdict.ending, verdict.cause) == (Ending.MISS, cause)
    assert not all(goal.met for goal in goals([verdict]))


def test_a_fix_without_a_change_a_proof_or_within_bounds_is_a_miss(minimal: Case) -> None:
    fixed = {"requirements.txt": _FIXED}

    assert _judged(minimal, {}).cause == "nothing changed"
    assert _judged(minimal, fixed, proof_level="").cause == "no proof named"
    assert _judged(minimal, fixed, moves=[]).cause == "no proof named"
    assert _judged(minimal, {**fixed, "setup.py": "x"}).cause == "undeclared file"
    assert _judged(minimal, {"requirements.txt": None}).cause == "undeclared file"
    assert _judged(minimal, fixed, written=["?? x"]).cause == "wrote into the repository"


@pytest.mark.parametrize(
    ("lock", "cause"),
    [
        (_lock("1.2.0", other="2.0.0"), ""),
        (_lock("1.2.0", other="2.1.0"), ""),
        (_lock("1.1.0", other="2.0.0"), "still affected"),
        (_lock("1.2.0", other="1.9.0"), "downgrade"),
        (_lock("1.2.0", "https://two.invalid", other="2.0.0"), "registry URL swapped"),
        (
            _lock("1.2.0", other="2.0.0").replace(
                '"version": "1.2.0"',
                '"version": "1.2.0", "funding": {"url": "https://three.invalid"},'
                ' "deprecated": "See https://four.invalid"',
            ),
            "",
        ),
        (_lock("1.2.0", other="2.0.0").replace('": 3', '": 2'), "formatting lost"),
        (_lock("1.2.0", other="2.0.0").replace("  ", "    "), "formatting lost"),
        (_lock("1.2.0", other="2.0.0").rstrip("}\n"), "a file can't be read any more"),
        (_lock("1.2.0", other="2.0.0").replace("resolved", "other"), "formatting lost"),
    ],
)
def test_a_lock_is_read_whole(committed: Case, lock: str, cause: str) -> None:
    verdict = _judged(committed, {"package-lock.json": lock})

    assert verdict.cause == cause
    assert verdict.ending is (Ending.MISS if cause else Ending.FIXED)


def test_a_copy_that_is_gone_is_no_downgrade_a_lower_answer_is(tmp_path: Path) -> None:
    """top 1 asks for flask and has a copy of its own; other asks too and has the shared one."""

    def lock(shared: str, own: str | None, top: str = "1.0.0") -> str:
        packages = {
            "node_modules/top": {"version": top, "dependencies": {"flask": "*"}},
            "node_modules/other": {"version": "1.0.0", "dependencies": {"flask": "*"}},
            "node_modules/flask": {"version": shared},
        }
        if own:
            packages["node_modules/top/node_modules/flask"] = {"version": own}
        return json.dumps({"lockfileVersion": 3, "packages": packages}, indent=2) + "\n"

    before = {"package-lock.json": lock("1.0.0", "2.0.0")}

    def lowered(after: str) -> list[str]:
        found = breaches("npm", before, {"package-lock.json": after})
        return [breach.detail for breach in found if breach.kind == "downgrade"]

    assert lowered(lock("1.1.0", "2.0.0")) == []
    assert lowered(lock("1.0.0", None, top="2.0.0")) == []
    assert lowered(lock("1.0.0", None)) == [
        "package-lock.json: top 1.0.0 gets flask 1.0.0, got 2.0.0"
    ]


@pytest.mark.parametrize(
    ("path", "text", "found"),
    [
        (
            "yarn.lock",
            '"@a/b@^1", "@a/b@^1.1":\n  version "1.2.0"\n',
            {("@a/b@^1", "@a/b"): {"1.2.0"}, ("@a/b@^1.1", "@a/b"): {"1.2.0"}},
        ),
        (
            "package-lock.json",
            json.dumps(
                {
                    "dependencies": {
                        "a": {
                            "version": "1.0.0",
                            "requires": {"b": "*", "c": "*"},
                            "dependencies": {"b": {"version": "2.0.0"}},
                        },
                        "b": {"version": "1.0.0"},
                        "c": {"version": "3.0.0"},
                    }
                }
            ),
            {("a 1.0.0", "b"): {"2.0.0"}, ("a 1.0.0", "c"): {"3.0.0"}},
        ),
        ("poetry.lock", "", {}),
    ],
)
def test_who_gets_what(path: str, text: str, found: Edges) -> None:
    assert edges(path, text) == found


def test_a_range_counts_where_no_lock_covers_it(tmp_path: Path) -> None:
    case = _case(
        tmp_path,
        {"package.json": '{"dependencies": {"flask": "^1.0.0"}}'},
        {},
        _record("npm", "flask", "1.2.0"),
        ecosystem="npm",
        expected_is_minimal_bump=None,
        expected_kind="what a human committed",
    )

    low = _judged(case, {"package.json": '{"dependencies": {"flask": "^1.1.0"}}'})
    high = _judged(case, {"package.json": '{"dependencies": {"flask": "^1.2.0"}}'})

    assert (low.cause, high.ending) == ("still affected", Ending.FIXED)


@pytest.mark.parametrize("reason", list(RefusalReason))
def test_refusing_everything_scores_nothing(
    minimal: Case, committed: Case, reason: RefusalReason
) -> None:
    """Also against a table that calls the reason right: the sentence must name the cause."""
    table = {
        case.name: Refusal((reason.value,), ("flask",), "why") for case in (minimal, committed)
    }
    refused = [Raw(case.name, "refused", reason.value, "I can't.") for case in (minimal, committed)]

    for reviews in (Reviews(), Reviews(table)):
        verdicts = [
            judge(case, raw, reviews)
            for case, raw in zip((minimal, committed), refused, strict=True)
        ]
        assert [verdict.ending for verdict in verdicts] == [Ending.MISS, Ending.MISS]
        assert not all(goal.met for goal in goals(verdicts))


def test_a_refusal_is_right_only_as_reviewed(committed: Case) -> None:
    review = Refusal(("blocked_by_constraint",), ("flask", "^1.0.0"), "why")
    reviews = Reviews({committed.name: review})
    words = "top asks for flask ^1.0.0."

    def ending(reason: str, sentence: str, reviews: Reviews = reviews) -> Ending:
        return judge(committed, Raw(committed.name, "refused", reason, sentence), reviews).ending

    assert ending("blocked_by_constraint", words) is Ending.REFUSED
    assert ending("resolver_failed", words) is Ending.MISS
    assert ending("blocked_by_constraint", "top asks for it.") is Ending.MISS
    assert ending("blocked_by_constraint", "top asks for flask-x ^1.0.0.") is Ending.MISS
    assert ending("blocked_by_constraint", words, Reviews()) is Ending.MISS
    assert ending("blocked_by_constraint", words, Reviews(misses={committed.name: "no"})) is (
        Ending.MISS
    )


def test_a_rightly_refused_minimal_bump_does_not_count_as_reached(minimal: Case) -> None:
    reviews = Reviews({minimal.name: Refusal(("resolver_failed",), ("flask",), "why")})
    verdict = judge(minimal, Raw(minimal.name, "refused", "resolver_failed", "flask"), reviews)

    assert verdict.ending is Ending.REFUSED
    assert not goals([verdict])[0].met


def test_a_crash_is_a_miss(minimal: Case) -> None:
    verdict = judge(minimal, Raw(minimal.name, "crashed", "KeyError", "'x'"), Reviews())

    assert (verdict.ending, verdict.cause) == (Ending.MISS, "crashed: KeyError")


def test_a_lock_alone_is_edited_exactly_or_not_at_all(tmp_path: Path) -> None:
    def lock(flask: str, other: str) -> str:
        packages = {"flask": flask, "other": other}
        return "".join(f'[[package]]\nname = "{n}"\nversion = "{v}"\n' for n, v in packages.items())

    case = _case(
        tmp_path,
        {"poetry.lock": lock("1.0", "3.0")},
        {"poetry.lock": lock("1.2", "3.0")},
        _record("PyPI", "flask", "1.2"),
    )

    assert _judged(case, {"poetry.lock": lock("1.2", "3.0")}).ending is Ending.FIXED
    assert _judged(case, {"poetry.lock": lock("1.2", "3.1")}).cause == (
        "more than the package changed"
    )
    named = {**_MOVE, "raised": ["Other 3.1"]}
    assert _judged(case, {"poetry.lock": lock("1.2", "3.1")}, moves=[named]).cause == ""
    assert _judged(case, {"poetry.lock": lock("1.3", "3.0")}).cause == (
        "another version than expected"
    )


@pytest.fixture
def fixture_case(tmp_path: Path) -> Case:
    patches = [
        {
            "packageUpdates": [{"name": "top", "versionFrom": "==1", "versionTo": "==2"}],
            "fixed": [{"id": "OSV-flask", "packages": [{"name": "flask", "version": "1.0"}]}],
        }
    ]
    return _case(
        tmp_path / "fixture",
        {"requirements.txt": "top==1\n"},
        {"patches.json": json.dumps(patches)},
        _record("PyPI", "flask", "1.2"),
        package_universe="universes/x.yaml",
    )


def _fixture_fix(case: Case, spec: str, flask: str) -> Raw:
    return _fix(
        case,
        {"requirements.txt": f"top{spec}\n"},
        installed_before=[("top", "1"), ("flask", "1.0")],
        installed_after=[("top", spec.lstrip("=>")), ("flask", flask)],
    )


def test_a_fixture_is_held_against_the_peers_patches(fixture_case: Case) -> None:
    reviewed = Reviews(fixes={fixture_case.name: "higher, and why not"})

    same = judge(fixture_case, _fixture_fix(fixture_case, "==2", "1.2"), Reviews())
    less = judge(fixture_case, _fixture_fix(fixture_case, "==2", "1.0"), reviewed)
    worse = judge(fixture_case, _fixture_fix(fixture_case, "==2", "1.1"), reviewed)
    other = judge(fixture_case, _fixture_fix(fixture_case, "==3", "1.2"), Reviews())
    better = judge(fixture_case, _fixture_fix(fixture_case, "==3", "1.2"), reviewed)

    assert same.ending is Ending.FIXED
    assert less.cause == "less than the peer fixes"
    assert worse.cause == "another affected version introduced"
    assert other.cause == "another fix than the peer's, not reviewed"
    assert better.ending is Ending.FIXED


def test_the_report_has_every_miss_and_every_refusal(minimal: Case, committed: Case) -> None:
    reviews = Reviews({minimal.name: Refusal(("resolver_failed",), ("flask",), "no wheel")})
    verdicts = [
        judge(minimal, Raw(minimal.name, "refused", "resolver_failed", "flask | 1"), reviews),
        judge(committed, Raw(committed.name, "crashed", "KeyError", "'x'"), reviews),
    ]
    facts = {"date": "2026-01-01", "clients": "npm 11"}

    text = markdown(verdicts, reviews, facts)

    assert "| `minimal` | resolver_failed | flask \\| 1 | no wheel |" in text
    assert "### crashed: KeyError (1)\n\n* `committed`: 'x'" in text
    assert json.loads(json.dumps(document(verdicts, facts)))["by_kind"][-1]["missed"] == 1


@pytest.mark.parametrize(
    "table",
    [
        '[refusals.a]\naccept = ["no_such_reason"]\nnames = ["x"]\nwhy = "y"\n',
        '[refusals.a]\naccept = ["own_code"]\nnames = []\nwhy = "y"\n',
        '[refusals.a]\naccept = ["own_code"]\nnames = ["x"]\nwhy = ""\n',
        '[other.a]\nwhy = "y"\n',
    ],
)
def test_a_careless_table_is_refused(tmp_path: Path, table: str) -> None:
    (tmp_path / "table.toml").write_text(table)

    with pytest.raises(ValueError, match=r"review|unknown"):
        Reviews.load(tmp_path / "table.toml")


def test_the_reviewed_table_is_well_formed() -> None:
    Reviews.load()


@pytest.mark.parametrize(
    ("version", "covered"),
    [
        ("1.0", True),
        ("1.2rc1", True),
        ("1.2", False),
        ("2.0", True),
        ("2.5", True),
        ("2.5.1", False),
    ],
)
def test_the_judges_own_ranges(version: str, covered: bool) -> None:
    events = [
        {"introduced": "2.0"},
        {"last_affected": "2.5"},
        {"introduced": "0"},
        {"fixed": "1.2"},
    ]
    record = _record("PyPI", "Flask_X", "1")
    record["affected"][0]["ranges"][0]["events"] = events

    assert bool(affecting([record], "PyPI", "flask-x", version)) is covered


@pytest.mark.parametrize(
    ("path", "text", "found"),
    [
        ("requirements.txt", "A_b[x]==1 ; python_version>'3'\n", [Held("a-b", "1", "==1")]),
        ("requirements.txt", "a==1 \\\n    --hash=sha256:0\n", [Held("a", "1", "==1")]),
        ("requirements.txt", "a~=1.0 # x\n-r b.txt\n", [Held("a", "1.0", "~=1.0", pinned=False)]),
        (
            "pyproject.toml",
            '[tool.poetry.dependencies]\npython = "^3.9"\na = {version = "^1.2"}\n',
            [Held("a", "1.2", "^1.2", pinned=False)],
        ),
        ("yarn.lock", '"@a/b@^1", "@a/b@^1.1":\n  version "1.2.0"\n', [Held("@a/b", "1.2.0")]),
        ("yarn.lock", 'x@npm:a@^1:\n  version "1.2.0"\n', [Held("a", "1.2.0")]),
        (
            "package.json",
            '{"dependencies": {"x": "npm:a@~1.2", "g": "github:a/b"}}',
            [
                Held("a", "1.2", "~1.2", pinned=False),
                Held("g", "", "github:a/b", pinned=False),
            ],
        ),
        (
            "package-lock.json",
            '{"dependencies": {"a": {"version": "1.0.0", "dependencies": {"b": {"version": "2.0.0"}}}}}',
            [Held("a", "1.0.0"), Held("b", "2.0.0")],
        ),
    ],
)
def test_the_judges_own_readers(path: str, text: str, found: list[Held]) -> None:
    assert list(held(path, text)) == found
