"""npm's ranges as OSV ranges: the same versions, by npm's own library."""

import contextlib
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fallback_tier.advisory import is_affected
from fallback_tier.advisory.npm_ranges import MAX_RANGE_LENGTH, osv_ranges
from fallback_tier.errors import AdvisoryError
from tests.kinds import OfKind
from tests.unit.shared.recipes import advisory
from tests.warm_npm import real_npm

#: As npm's own advisory code asks (@npmcli/metavuln-calculator).
_ORACLE = """
const semver = require(process.argv[1])
const options = { includePrerelease: true, loose: true }
require('readline').createInterface({ input: process.stdin }).on('line', line => {
  const [range, versions] = JSON.parse(line)
  console.log(JSON.stringify(versions.map(it => semver.satisfies(it, range, options))))
})
"""

Oracle = Callable[[str, list[str]], list[bool]]


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    npm, node = real_npm(), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("npm's own semver is the oracle, and npm is not installed")
    library = Path(npm).resolve().parents[1] / "node_modules" / "semver"
    if not library.is_dir():
        pytest.skip("npm's own semver is not where npm usually keeps it")
    argv = [node, "-e", _ORACLE, str(library)]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def ask(spec: str, versions: list[str]) -> list[bool]:
            stdin.write(json.dumps([spec, versions]) + "\n")
            stdin.flush()
            answer: list[bool] = json.loads(stdout.readline())
            return answer

        yield ask
        stdin.close()


small = st.integers(0, 3)
prerelease = st.sampled_from(["", "", "", "-0", "-alpha", "-alpha.1", "-beta", "-beta.2"])
full = st.builds("{}.{}.{}{}".format, small, small, small, prerelease)
partial = st.builds("{}.{}".format, small, small) | st.builds("{}".format, small)
wild = st.builds("{}.{}.x".format, small, small) | st.builds("{}.*".format, small) | st.just("*")
operand = full | full | partial | wild
comparator = st.builds(
    "{}{}{}".format,
    st.sampled_from(["", "=", "<", "<=", ">", ">=", "^", "~", "<", ">="]),
    st.sampled_from(["", "", " ", "v"]),
    operand,
)
hyphen = st.builds("{} - {}".format, full | partial, full | partial)
alternative = st.lists(comparator, min_size=1, max_size=3).map(" ".join) | hyphen
ranges = st.lists(alternative, min_size=1, max_size=3).map(" || ".join)


@settings(max_examples=400, deadline=None)
@given(ranges, st.lists(full, min_size=8, max_size=8))
@example("<1.2.3 || >=2.0.0 <2.0.5", ["1.2.2", "1.2.3", "1.2.3-beta", "2.0.5-0", "2.0.4"])
@example(">1.2.3", ["1.2.3", "1.2.4-0", "1.2.4", "1.2.3-z"])
@example("<=1.2.3-beta", ["1.2.3-beta", "1.2.3-beta.0", "1.2.3-alpha"])
def test_agrees_with_npm_pre_releases_included(
    oracle: Oracle, spec: str, versions: list[str]
) -> None:
    record = advisory("npm", "pkg", ranges=osv_ranges(spec))
    reported = [is_affected(record, "npm", "pkg", version) for version in versions]
    assert dict(zip(versions, reported, strict=True)) == dict(
        zip(versions, oracle(spec, versions), strict=True)
    )


@pytest.mark.parametrize(
    ("spec", "events"),
    [
        ("<1.2.3", [[("introduced", "0"), ("fixed", "1.2.3")]]),
        ("< 1.2.3", [[("introduced", "0"), ("fixed", "1.2.3")]]),
        ("<=1.2.3", [[("introduced", "0"), ("last_affected", "1.2.3")]]),
        (">= 1.0.0, < 1.2.3", [[("introduced", "1.0.0"), ("fixed", "1.2.3")]]),
        ("=1.2.3", [[("introduced", "1.2.3"), ("last_affected", "1.2.3")]]),
        (">1.2.3", [[("introduced", "1.2.4-0")]]),
        ("*", [[("introduced", "0")]]),
        (
            "<1.0.0||>=2.0.0 <2.0.5",
            [
                [("introduced", "0"), ("fixed", "1.0.0")],
                [("introduced", "2.0.0"), ("fixed", "2.0.5")],
            ],
        ),
        (">=2.0.0 <1.0.0", []),
    ],
)
def test_what_advisories_write(spec: str, events: list[list[tuple[str, str]]]) -> None:
    reported = [
        [pair for event in a_range["events"] for pair in event.items()]
        for a_range in osv_ranges(spec)
    ]
    assert reported == events


@pytest.mark.parametrize(
    "text",
    [
        "latest",
        "git+ssh://host/x.git",
        "<1.2.3.4",
        "1.2.3 nonsense",
        "<",
        ">=1.0.0 <2.0.0)",
        "1.2.3<2",
    ],
)
def test_what_is_no_range_is_a_typed_error(text: str) -> None:
    with pytest.raises(AdvisoryError, check=OfKind("not_a_range")):
        osv_ranges(text)


@given(st.text(max_size=40))
def test_any_text_is_ranges_or_a_typed_error(text: str) -> None:
    with contextlib.suppress(AdvisoryError):
        advisory("npm", "pkg", ranges=osv_ranges(text))


def test_a_text_of_any_length_makes_a_short_message() -> None:
    with pytest.raises(AdvisoryError) as caught:
        osv_ranges("1" * (MAX_RANGE_LENGTH + 1))
    assert len(caught.value.problem) < 200
