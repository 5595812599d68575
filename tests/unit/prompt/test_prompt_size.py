"""What prompts cost: a retry's is smaller than the first one's, and the cached prefix never differs."""

import hashlib
import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fallback_plugins.npm import build_ecosystem as npm
from fallback_plugins.pypi import build_ecosystem as pypi
from fallback_tier.outcome import SearchReplace
from fallback_tier.prompt.builder import PromptBuilder
from fallback_tier.retrieval import FewShot, SolvedExample
from tests.fakes.repository import context
from tests.fixtures.examples import WRITTEN, shown
from tests.unit.prompt.context_cases import advisory, failed

#: A retry's prompt against the first attempt's with four examples, at most.
RETRY_RATIO = 0.7

CALLER = "".join(
    f"import vulnerable\n\n\ndef load_{number}(name):\n    return vulnerable.load(open(name))\n\n\n"
    for number in range(20)
)


def examples() -> list[FewShot]:
    """Four, as long as most that the memory shows."""
    edit = SearchReplace(path="a.py", old="x = load(text)\n" * 40, new="x = safe(text)\n" * 40)
    return [
        shown(
            SolvedExample(
                example_id=f"e{number}",
                advisory_id=f"OTHER-{number}",
                advisory_text="It loads what it should not.",
                ecosystem="PyPI",
                package="other",
                edits=(edit,),
                file_sha256={},
                provenance=WRITTEN,
                licence="MIT",
            )
        )
        for number in range(4)
    ]


def test_a_retrys_prompt_is_smaller_than_the_first_ones(tmp_path: Path) -> None:
    repo = context(tmp_path, {"service/reading.py": CALLER, "pyproject.toml": "[project]\n"})
    summary = (
        "Failing tests:\n- t.test_load\nFrames:\n- service/reading.py:4 in load_0\n" + "E " * 300
    )
    builder = PromptBuilder(lambda: "0" * 32)
    first = builder.build(advisory("load runs code"), repo, pypi(None), examples=examples())  # type: ignore[arg-type]
    retry = builder.build(
        advisory("load runs code"),
        repo,
        pypi(None),  # type: ignore[arg-type]
        prior_attempts=failed(summary),
    )
    assert [snippet.path for snippet in first.snippets][:1] == ["service/reading.py"]
    assert {s.path for s in retry.snippets} >= {"service/reading.py"}
    assert retry.byte_count <= RETRY_RATIO * first.byte_count


@pytest.mark.parametrize("plugin", [npm, pypi])
def test_the_cached_prefix_is_the_same_bytes_in_every_fix_of_an_ecosystem(
    tmp_path: Path, plugin: object
) -> None:
    assert callable(plugin)
    nonces = itertools.count(1)
    builder = PromptBuilder(lambda: f"{next(nonces):032x}", frozenset({"a secret"}))
    prompts = []
    for number, details in enumerate(("load runs code", "another flaw, {{ fence_code }}", "")):
        root = tmp_path / str(number)
        root.mkdir()
        repo = context(root, {f"part_{number}.py": f"import vulnerable  # {number}\n"})
        prompts += [
            builder.build(advisory(details), repo, plugin(None), examples=examples()[:number]),
            builder.build(advisory(details), repo, plugin(None), own_code=True),
            builder.build(advisory(details), repo, plugin(None), prior_attempts=failed(details)),
        ]
    assert len({prompt.sha256 for prompt in prompts}) == len(prompts)
    assert len({hashlib.sha256(prompt.system.encode()).hexdigest() for prompt in prompts}) == 1


#: Files that have words of the same weights in another order: their scores differ only by how a sum rounds.
_PROGRAM = """
import sys
from pathlib import Path
from fallback_plugins.pypi import build_ecosystem
from fallback_tier.prompt.context import select_snippets
from tests.fakes.repository import context
from tests.unit.prompt.context_cases import advisory

def word(number):
    return "word" + chr(97 + number // 26) + chr(97 + number % 26)

words = [word(number) for number in range(48)]
files = {}
for number in range(12):
    mine = words[number * 4 : number * 4 + 4]
    files[f"f{number:02}.py"] = "# " + " ".join(mine)
    for times, one in enumerate(mine):
        for copy in range(times):
            files[f"tests/t{number}_{times}_{copy}.py"] = "# " + one
repo = context(Path(sys.argv[1]), files)
found = select_snippets(advisory(" ".join(words)), repo, build_ecosystem(None))
print([snippet.path for snippet in found])
"""


def test_the_selection_does_not_depend_on_the_process(tmp_path: Path) -> None:
    """Sets of strings are walked in an order of their own in every process."""
    found = set()
    for seed in "0123":
        place = tmp_path / seed
        place.mkdir()
        made = subprocess.run(
            [sys.executable, "-c", _PROGRAM, place],
            cwd=Path(__file__).parents[3],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        found.add(made.stdout)
    assert len(found) == 1
