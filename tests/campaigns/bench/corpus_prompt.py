"""A made-up service of 200 source files that uses a vulnerable library in a few of them.

Sizes differ as in a real project (most files are short, some are long); seeds are fixed, so that every
run measures the same.
"""

import random
from pathlib import Path
from typing import Any

#: Source files: the project that the goal is about.
FILES = 200

#: Every so many files one imports the library, and one of its functions is the vulnerable call.
_USES_EVERY = 40

#: Functions of a file: from a helper to a module of 60.
_FUNCTIONS = (3, 60)

_WORDS = ("order", "price", "stock", "user", "token", "cache", "report", "mail", "page", "query")
_WORDS += (
    "filter",
    "store",
    "item",
    "label",
    "status",
    "worker",
    "queue",
    "batch",
    "event",
    "audit",
)

ADVISORY = {
    "id": "BENCH-2026-0002",
    "modified": "2026-01-01T00:00:00Z",
    "summary": "Unsafe deserialization",
    "details": "PyYAML before 5.3.1 runs code of the author of an untrusted YAML file that it loads "
    "with the `full_load` method or with the FullLoader loader. Use `yaml.safe_load`.",
    "affected": [
        {
            "package": {"ecosystem": "PyPI", "name": "pyyaml"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "5.3.1"}]}],
        }
    ],
}

#: Stands in the prompt exactly when one of the vulnerable calls does.
CALL = "return yaml.load(source)"

_FUNCTION = '''

def {one}_{two}_{number}({three}, limit=10):
    """Return the {one} of a {three}."""
    found = [{three} for {three} in {three}.parts if {three}.{two} > limit]
    return json.dumps(found)
'''
_LOADER = """

def load_settings_{number}(path):
    with open(path) as source:
        {call}
"""


def repository(root: Path, paths: tuple[str, ...]) -> Any:
    """The folder as the tier sees a repository."""
    from fallback_tier.repo import RepoContext

    return RepoContext(
        root=root,
        base_commit="0" * 40,
        tracked_files=paths,
        manifests=tuple(path for path in paths if path == "pyproject.toml"),
        fix_id="fix",
        gate_transition_id="gate",
    )


def write_project(root: Path) -> tuple[str, ...]:
    """Write it, and tell its paths."""
    draw = random.Random(1)
    files = {"pyproject.toml": '[project]\nname = "service"\ndependencies = ["pyyaml==5.1"]\n'}
    for number in range(FILES):
        uses = number % _USES_EVERY == 7
        text = "import json\n" + ("import yaml\n" if uses else "")
        for function in range(draw.randrange(*_FUNCTIONS)):
            one, two, three = draw.sample(_WORDS, 3)
            text += _FUNCTION.format(one=one, two=two, three=three, number=function)
        files[f"service/part_{number % 10}/module_{number}.py"] = text + (
            _LOADER.format(number=number, call=CALL) if uses else ""
        )
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return tuple(sorted(files))
