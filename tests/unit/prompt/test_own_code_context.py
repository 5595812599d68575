"""A package's own code in a prompt: the room is filled, the likeliest place first."""

from pathlib import Path

import pytest

from fallback_audit.vocabulary import AffectedCode, DecidedBy
from fallback_tier.advisory import Advisory, parse_advisory
from fallback_tier.affected import Affected, OwnPackage
from fallback_tier.outcome import AttemptSummary
from fallback_tier.prompt.context import MAX_SNIPPET_BYTES, Snippet, select_snippets
from fallback_tier.repo import ProofFailure, Settings
from tests.fakes.ecosystem import FakeEcosystem
from tests.fakes.repository import context
from tests.unit.prompt.context_cases import failed

PACKAGE = {"ecosystem": "PyPI", "name": "lib"}


def advisory(summary: str, details: str = "", cwe: tuple[str, ...] = ()) -> Advisory:
    body = Advisory.model_validate(
        {
            "id": "TEST-1",
            "summary": summary,
            "details": details,
            "affected": [{"package": PACKAGE}],
            "database_specific": {"cwe_ids": list(cwe)},
        }
    )
    return parse_advisory(body.model_dump_json().encode(), "test")


def chosen(
    root: Path,
    files: dict[str, str],
    about: Advisory,
    space: int = 96_000,
    manifests: tuple[str, ...] = ("pyproject.toml",),
    prior: tuple[AttemptSummary, ...] = (),
    proof: ProofFailure | None = None,
) -> tuple[Snippet, ...]:
    own = tuple(OwnPackage(name="lib", manifest=one) for one in manifests)
    affected = Affected(code=AffectedCode.OWN, decided_by=DecidedBy.MANIFEST, own=own)
    settings = Settings(own_code_budget_bytes=space)
    update = {"affected": affected, "settings": settings, "proof_failure": proof}
    repo = context(root, files).model_copy(update=update)
    return select_snippets(about, repo, FakeEcosystem(), own_code=True, prior_attempts=prior)


WITHHELD = (
    *(
        "secrets.py",
        "lib/secrets.py",
        "lib/aws_credentials.py",
        "lib/credentials/aws.py",
        "lib/api_keys.py",
    ),
    *(
        "secrets/prod.py",
        "lib/passwords.py",
        "local_settings.py",
        "lib/secret.prod.py",
        "config/keys.js",
    ),
)


@pytest.mark.parametrize("path", WITHHELD)
def test_a_file_of_secrets_is_in_no_first_prompt(path: str, tmp_path: Path) -> None:
    """Whatever names it: the advisory, its module, a function in it, a failure, an import."""
    code = "import vulnerable\n\n\ndef load_keys(value):\n    return 'no secret by its form'\n"
    files = {path: code, "lib/a.py": "def other(value):\n    return load_keys(value)\n"}
    about = advisory(
        "load_keys leaks", f"`load_keys` in {path}, {path[:-3].replace('/', '.')}.load_keys"
    )
    failure = failed(f"{path}:4: in load_keys\nNameError: name 'load_keys' is not defined")
    assert paths(chosen(tmp_path, files, about)) == ["lib/a.py"]
    assert paths(chosen(tmp_path, files, about, prior=failure)) == ["lib/a.py"]
    repo = context(tmp_path, files)
    for prior in ((), failure):
        found = select_snippets(about, repo, FakeEcosystem(), prior_attempts=prior)
        assert path not in paths(found)


def test_a_manifest_in_a_folder_of_secrets_is_not_shown(tmp_path: Path) -> None:
    files = {"deps.txt": "vulnerable 1.0\n", "secrets/deps.txt": "vulnerable 1.0\n"}
    repo = context(tmp_path, files).model_copy(update={"manifests": tuple(files)})
    assert paths(select_snippets(advisory("it"), repo, FakeEcosystem())) == ["deps.txt"]


def paths(snippets: tuple[Snippet, ...]) -> list[str]:
    return list(dict.fromkeys(snippet.path for snippet in snippets))


def function(name: str, body: str = "return 1", lines: int = 1) -> str:
    return f"def {name}(value):\n" + f"    {body}\n" * lines + "\n\n"


def test_a_small_package_is_shown_whole_whatever_little_the_advisory_says(tmp_path: Path) -> None:
    files = {
        "deps.txt": "other 1.0\n",
        "lib/a.py": function("one"),
        "lib/b.py": function("two"),
        "tests/test_a.py": function("test_one"),
        "docs/conf.py": "x = 1\n",
        "examples/use.py": "import lib\n",
        "setup.py": "setup()\n",
    }
    found = chosen(tmp_path, files, advisory("Denial of service in lib"))
    assert sorted(paths(found)[:-1]) == ["lib/a.py", "lib/b.py"]
    assert paths(found)[-1] == "deps.txt"


def test_where_there_is_nothing_else_what_is_beside_the_product_is_shown(tmp_path: Path) -> None:
    assert paths(chosen(tmp_path, {"examples/a.py": "x = 1\n"}, advisory("XSS in lib"))) == [
        "examples/a.py"
    ]


@pytest.mark.parametrize(
    ("summary", "cwe", "code"),
    [
        ("Prototype pollution in lib", (), "target[name] = found"),
        ("An issue in lib", ("CWE-1321",), "target[name] = found"),
        ("ReDoS in lib", (), "found = re.match(r'(a+)+', value)"),
        ("Zip slip", ("CWE-22",), "place = os.path.join(folder, value)"),
        ("Command injection", (), "subprocess.run(value, shell=True)"),
        ("SQL injection", (), "cursor.execute('SELECT ' + value)"),
    ],
)
def test_its_kind_of_weakness_tells_where_to_look_first(
    tmp_path: Path, summary: str, cwe: tuple[str, ...], code: str
) -> None:
    files = {f"lib/m{number}.py": function("other", "pass", 200) for number in range(9)}
    files["lib/n.py"] = function("this", code, 20)
    found = chosen(tmp_path, files, advisory(summary, cwe=cwe), space=3_000)
    assert paths(found)[0] == "lib/n.py"


def test_what_the_title_says_counts_more_than_what_follows(tmp_path: Path) -> None:
    files = {
        "lib/preview.py": function("render_preview", "check = 1", 20),
        "lib/session.py": function("open_session", "login = cookie = token = account", 20),
    }
    details = (
        "An account opens a session; login gives a cookie with a token to open the session again."
    )
    about = advisory("Missing check on previews", details)
    assert paths(chosen(tmp_path, files, about, space=900)) == ["lib/preview.py"]


def test_headings_that_every_advisory_has_tell_nothing(tmp_path: Path) -> None:
    files = {
        "lib/archive.py": function("unpack"),
        "lib/support.py": function("ask_support_contact"),
    }
    files = {path: text * 20 for path, text in files.items()}
    details = (
        "### Impact\nAn archive is unpacked.\n### For more information\n"
        "Ask our support; a support contact answers whoever asks: support@host.invalid\n"
    )
    found = chosen(tmp_path, files, advisory("", details), space=1_000)
    assert paths(found) == ["lib/archive.py"]


@pytest.mark.parametrize("space", [3_000, 12_000, 40_000])
def test_a_retry_shows_what_failed_and_no_less_than_a_first_attempt(
    tmp_path: Path, space: int
) -> None:
    files = {
        f"lib/m{number}.py": function(f"part_{number}", "check = 1", 300) for number in range(30)
    }
    files["tests/test_part.py"] = function("test_part", "assert part_3(1)", 3)
    about = advisory("Missing check in part_20", "The function `part_20` does not check.")
    first = shown_lines(chosen(tmp_path, files, about, space))
    again = shown_lines(
        chosen(tmp_path, files, about, space, prior=failed("tests/test_part.py:2: in test_part"))
    )
    assert first <= again
    assert ("tests/test_part.py", 2) in again - first


def shown_lines(snippets: tuple[Snippet, ...]) -> set[tuple[str, int]]:
    return {
        (one.path, line) for one in snippets for line in range(one.start_line, one.end_line + 1)
    }


def test_what_is_called_there_is_shown_before_what_is_not(tmp_path: Path) -> None:
    many = {f"lib/a{n}.py": function("write_elsewhere", "pass", 200) for n in range(20)}
    guards = function("unrelated", "pass", 400) + function("is_inside", "pass", 230)
    files = {
        "lib/unpack.py": function("unpack_archive", "is_inside(value)", 80),
        "lib/z.py": guards,
        **many,
    }
    found = chosen(tmp_path, files, advisory("`unpack_archive()` writes elsewhere"), space=26_000)
    assert found[0].path == "lib/unpack.py"
    assert "def is_inside" in "".join(one.text for one in found if one.path == "lib/z.py")


def test_the_rest_of_its_file_comes_before_other_files(tmp_path: Path) -> None:
    """The pattern that a fix changes stands above the function that the advisory names."""
    constants = "KEY_RE = 1\n" * 300
    file = constants + function("set_header", "use(value)", 20) + function("end", "pass", 500)
    other = {f"lib/a{n}.py": function("header", "header = value", 300) for n in range(20)}
    found = chosen(tmp_path, {"lib/z.py": file, **other}, advisory("`set_header()` header"), 64_000)
    shown = "".join(one.text for one in found if one.path == "lib/z.py")
    assert shown.count("KEY_RE") == 300


def test_a_long_function_is_shown_around_what_matters_and_then_its_rest(tmp_path: Path) -> None:
    filler = "".join(f"    line_{number} = {number}\n" for number in range(800))
    text = f"def long_one(value):\n{filler}    secret_check(value)\n{filler}\n"
    about = advisory("`secret_check` is skipped")
    few = chosen(tmp_path, {"lib/a.py": text}, about, space=4_000)
    assert [len(few), "secret_check(value)" in few[0].text] == [1, True]
    every = chosen(tmp_path, {"lib/a.py": text}, about)
    assert "secret_check(value)" in every[0].text
    lines = [n for one in every for n in range(one.start_line, one.end_line + 1)]
    assert sorted(lines) == list(range(1, text.count("\n") + 1))
    assert all(len(one.text.encode()) <= MAX_SNIPPET_BYTES for one in every)


def test_a_file_of_half_a_megabyte_is_read_in_windows(tmp_path: Path) -> None:
    filler = "".join(function(f"f{number}", "pass", 3) for number in range(8_000))
    text = filler + function("baseUnset", "return 2") + filler
    assert len(text) > 512 * 1024
    found = chosen(tmp_path, {"lib/main.py": text}, advisory("`baseUnset` goes too far"))
    assert "def baseUnset" in found[0].text


def test_one_long_line_hides_no_file(tmp_path: Path) -> None:
    text = function("login") * 60 + f"ICON = '{'x' * 2_000}'\n" + function("logout") * 60
    found = chosen(tmp_path, {"lib/a.py": text}, advisory("CSRF"))
    shown = "".join(snippet.text for snippet in found)
    assert "def login" in shown
    assert "def logout" in shown
    assert "<<<CUT a line of 2,009 characters>>>" in shown


def test_a_name_with_dots_is_found_where_it_is_given_a_value(tmp_path: Path) -> None:
    files = {f"lib/a{n}.py": function("x", "use(block.def)", 300) for n in range(9)}
    files["lib/rules.py"] = "other = 1\n" * 500 + "block.def = edit('x')\n" + "last = 2\n" * 500
    found = chosen(tmp_path, files, advisory("ReDoS", "The regular expression `block.def` …"))
    assert found[0].path == "lib/rules.py"
    assert "block.def = edit" in found[0].text


def test_the_affected_package_comes_before_its_neighbours(tmp_path: Path) -> None:
    text = function("merge_deep", "target[key] = value", 30)
    files = {"packages/a/x.py": text, "packages/b/x.py": text, "packages/c/x.py": text}
    about = advisory("Prototype pollution in merge_deep")
    found = chosen(tmp_path, files, about, 900, manifests=("packages/b/pyproject.toml",))
    assert paths(found) == ["packages/b/x.py"]


def test_code_in_the_ecosystems_language_comes_first(tmp_path: Path) -> None:
    files = {"lib/a.js": "render(page)\n" * 40, "lib/b.py": "render(page)\n" * 40}
    assert paths(chosen(tmp_path, files, advisory("Render flaw in page"), 600)) == ["lib/b.py"]


def test_what_the_advisory_names_is_never_beside_the_product(tmp_path: Path) -> None:
    files = {"tools/run.py": function("run_it"), "lib/a.py": function("one")}
    found = chosen(tmp_path, files, advisory("Code injection", "in tools/run.py, when run"))
    assert paths(found)[0] == "tools/run.py"


def test_only_at_the_packages_root_a_folder_is_beside_it(tmp_path: Path) -> None:
    files = {
        "packages/b/tools/run.py": function("tool"),
        "packages/b/lib/tools/python.py": function("eval_it"),
        "packages/b/lib/other.py": function("other"),
    }
    found = chosen(
        tmp_path, files, advisory("RCE in lib"), manifests=("packages/b/pyproject.toml",)
    )
    assert sorted(paths(found)) == ["packages/b/lib/other.py", "packages/b/lib/tools/python.py"]


def test_many_small_files_fill_the_room_too(tmp_path: Path) -> None:
    files = {f"lib/m{number:03}.py": function(f"f{number}", "pass", 40) for number in range(300)}
    found = chosen(tmp_path, files, advisory("XSS in lib"))
    assert sum(len(one.text) for one in found) > 90_000


def test_a_table_that_is_filled_below_is_found(tmp_path: Path) -> None:
    """A sign at a line's end, with more lines behind it."""
    files = {f"lib/m{n}.py": function("other", "pass", 100) for n in range(9)}
    files["lib/n.py"] = "index = {}\n" + function("this", "pass", 40)
    found = chosen(tmp_path, files, advisory("Prototype pollution"), space=700)
    assert paths(found) == ["lib/n.py"]


def test_of_manifests_a_short_one_at_the_root_comes_behind_the_code(tmp_path: Path) -> None:
    files = {"deps.txt": "other 1.0\n", "lib/a.py": function("one")}
    found = chosen(tmp_path / "1", files, advisory("XSS in lib"))
    assert paths(found) == ["lib/a.py", "deps.txt"]
    long = files | {"deps.txt": "other 1.0\n" * 100}
    assert paths(chosen(tmp_path / "2", long, advisory("XSS in lib"))) == ["lib/a.py"]


def failing(**pointers: object) -> ProofFailure:
    return ProofFailure.model_validate({"text": "Failing tests:\n- it", **pointers})


#: Each of many files has the words of the advisory, and one has what the proof points at.
ABOUT = "A regular expression in the parser of links is slow"
TALKING = {
    f"lib/m{number}.py": function("other", "regular = expression = parser = links", 60)
    for number in range(20)
}


@pytest.mark.parametrize(
    "pointers",
    [
        pytest.param({"frames": [{"path": "lib/z.py", "line": 2}]}, id="a frame"),
        pytest.param({"files": ["lib/z.py"], "names": ["quite_other"]}, id="an import"),
    ],
)
def test_what_the_proof_points_at_comes_before_what_the_advisory_talks_about(
    tmp_path: Path, pointers: dict[str, object]
) -> None:
    files = {**TALKING, "lib/z.py": function("quite_other", "pass", 40)}
    assert "lib/z.py" not in paths(chosen(tmp_path, files, advisory(ABOUT), space=3_000))
    found = chosen(tmp_path, files, advisory(ABOUT), space=3_000, proof=failing(**pointers))
    assert paths(found)[0] == "lib/z.py"


@pytest.mark.parametrize(
    "pointers",
    [
        pytest.param({"files": ["lib/z.py"]}, id="a file that is imported"),
        pytest.param({"names": ["quite_other"]}, id="a name that is imported"),
        pytest.param({"uses": ["quite_other"]}, id="a function that is called"),
        pytest.param({"titles": ["test/test_quite_other.py::test_quite_other"]}, id="a title"),
    ],
)
def test_a_proof_tells_places_apart_that_the_advisory_does_not(
    tmp_path: Path, pointers: dict[str, object]
) -> None:
    files = {**TALKING, "lib/z.py": function("quite_other", "pass", 300)}
    about = advisory("An issue in lib")
    assert paths(chosen(tmp_path, files, about, space=3_000))[0] != "lib/z.py"
    found = chosen(tmp_path, files, about, space=3_000, proof=failing(**pointers))
    assert paths(found)[0] == "lib/z.py"


def test_the_line_of_a_frame_is_shown_of_a_long_function(tmp_path: Path) -> None:
    long = function("read_all", "step = 1", 600) + function("other", "pass", 20)
    files = {"lib/a.py": long}
    frame = {"path": "lib/a.py", "line": 500}
    (found,) = chosen(tmp_path, files, advisory(ABOUT), space=1_000, proof=failing(frames=[frame]))
    assert found.start_line <= 500 <= found.end_line


def test_what_an_advisory_marks_as_code_comes_before_its_prose(tmp_path: Path) -> None:
    files = {**TALKING, "lib/z.py": function("walk_tree", "pass", 40)}
    found = chosen(tmp_path, files, advisory(ABOUT, "`walk_tree` does it."), space=3_000)
    assert paths(found)[0] == "lib/z.py"


def test_a_part_of_a_word_is_no_match(tmp_path: Path) -> None:
    files = {
        **{
            f"lib/m{n}.py": function(f"regularized_{n}", "regularization = 1", 60) for n in range(9)
        },
        "lib/z.py": function("find", "matches = regular", 40),
    }
    found = chosen(tmp_path, files, advisory("A regular thing is slow"), space=3_000)
    assert paths(found)[0] == "lib/z.py"


def test_a_whole_word_comes_before_a_part_of_an_identifier(tmp_path: Path) -> None:
    files = {
        **{f"lib/m{n}.py": function("other", f"archive_{n} = 1", 60) for n in range(9)},
        "lib/z.py": function("find", "archive = 1", 60),
    }
    found = chosen(tmp_path, files, advisory("An archive is read"), space=3_000)
    assert paths(found)[0] == "lib/z.py"


def test_code_is_added_until_its_rank_falls_off(tmp_path: Path) -> None:
    other = {f"lib/m{number}.py": function("other", "pass", 300) for number in range(80)}
    files = {**other, "lib/z.py": function("walk_tree", "pass", 40)}
    frame = {"path": "lib/z.py", "line": 2}
    found = chosen(tmp_path, files, advisory(ABOUT), space=190_000, proof=failing(frames=[frame]))
    assert paths(found)[0] == "lib/z.py"
    shown = sum(len(one.text) for one in found)
    assert 40_000 < shown < 60_000, "of 220,000 characters"
    # Where nothing tells one place from another, the room is filled.
    everything = chosen(tmp_path, files, advisory("An issue in lib"), space=100_000)
    assert sum(len(one.text) for one in everything) > 90_000


def test_a_pointer_at_what_is_not_there_does_no_harm(tmp_path: Path) -> None:
    pointers = {
        "frames": [{"path": "lib/gone.py", "line": 3}, {"path": "lib/a.py", "line": 999_999}],
        "files": ["lib/gone.py"],
        "names": ["gone"],
        "titles": ["\ud800", ""],
    }
    files = {"lib/a.py": function("one")}
    assert paths(chosen(tmp_path, files, advisory(ABOUT), proof=failing(**pointers))) == [
        "lib/a.py"
    ]
