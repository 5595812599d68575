"""What no fix may do, looked for in the texts before and after, with readers of the judge's own."""

import json
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from tests.campaigns.recipes_bench.edges import edges
from tests.campaigns.recipes_bench.inventory import Held, held, is_lock
from tests.campaigns.recipes_bench.versions import affecting, order

_URL = re.compile(r"""https?://[^/\s"'#]+""")
#: What a lock of npm's copies from a package about itself: nothing is fetched from there.
_ABOUT = re.compile(
    r""""(?:funding|deprecated|homepage)":\s*(?:"(?:[^"\\]|\\.)*"|\{[^{}]*\}|\[[^\[\]]*\])"""
)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'')
_INDENT = re.compile(r"\n([ \t]+)\S")

#: pip-compile's and uv's notes of who asked: they go with the package, and are made anew.
_GENERATED = re.compile(r"# via\b.*|#   \S.*")


@dataclass(frozen=True)
class Breach:
    """Something that a fix did and may not do."""

    kind: str
    detail: str


def breaches(ecosystem: str, before: Mapping[str, str], after: Mapping[str, str]) -> list[Breach]:
    """Everything that is wrong with the change as a whole, whatever it fixes."""
    found = [
        Breach("undeclared file", path)
        for path in (*after, *before)
        if (path in before) != (path in after)
    ]
    for path, old in before.items():
        new = after.get(path, old)
        if new == old:
            continue
        found += (
            Breach("downgrade", message) for message in _downgrades(ecosystem, path, old, new)
        )
        found += (
            Breach("registry URL swapped", f"{path}: {message}") for message in _urls(old, new)
        )
        found += (
            Breach("comment lost", f"{path}: {message}") for message in _comments(path, old, new)
        )
        found += (
            Breach("formatting lost", f"{path}: {message}") for message in _form(path, old, new)
        )
    return found


def still_affected(
    ecosystem: str, advisories: list[dict[str, Any]], texts: Mapping[str, str]
) -> list[str]:
    """Affected versions that the files still hold, ``package version (path)``.

    A range counts by its lowest version where no lock says what it resolves to.
    """
    found = []
    for path, text in texts.items():
        covered = is_covered(path, texts)
        for one in held(path, text):
            if not one.version or (covered and not one.pinned):
                continue
            if ids := affecting(advisories, ecosystem, one.name, one.version):
                found.append(f"{one.name} {one.version} ({path}; {', '.join(sorted(ids))})")
    return list(dict.fromkeys(found))


def is_covered(path: str, texts: Iterable[str]) -> bool:
    """Does a lock beside it, or above it, say what its ranges resolve to?"""
    locked = {PurePosixPath(other).parent for other in texts if is_lock(other)}
    return any(parent in locked for parent in PurePosixPath(path).parents)


def changed_packages(before: Mapping[str, str], after: Mapping[str, str]) -> set[str]:
    """Names of the packages of which a file holds something else than before."""
    changed: set[str] = set()
    for path in before.keys() & after.keys():
        old, new = (Counter(held(path, texts[path])) for texts in (before, after))
        changed |= {one.name for one in ((old - new) + (new - old))}
    return changed


def changed_lines(before: Mapping[str, str], after: Mapping[str, str]) -> int:
    """Lines added and removed, as git counts them."""
    with tempfile.TemporaryDirectory(prefix="diff-") as folder:
        place = Path(folder)
        for name, texts in (("a", before), ("b", after)):
            for path, text in texts.items():
                (place / name / path).parent.mkdir(parents=True, exist_ok=True)
                (place / name / path).write_bytes(text.encode())
        done = subprocess.run(
            ["git", "diff", "--no-index", "--numstat", "a", "b"],
            cwd=place,
            capture_output=True,
            check=False,  # 1: they differ
            text=True,
        )
    counts = (line.split("\t")[:2] for line in done.stdout.splitlines())
    return sum(int(added) + int(removed) for added, removed in counts)


def _downgrades(ecosystem: str, path: str, old: str, new: str) -> Iterator[str]:
    """The highest version gives way to a lower one that was not there, or an dependent gets a lower one.

    A copy that is gone with its last dependent is no downgrade, nor is one that a new dependent brings.
    """
    before, after = (_by_name(ecosystem, held(path, text)) for text in (old, new))
    for name, versions in before.items():
        now = after.get(name)
        if now and max(now) < max(versions) and max(now) not in versions:
            spelled = [", ".join(group[key] for key in sorted(group)) for group in (versions, now)]
            yield f"{path}: {name} {' → '.join(spelled)}"
    asked = edges(path, new)
    for (dependent, name), texts in edges(path, old).items():
        keys, now_keys = (
            [key for key in (order(ecosystem, text) for text in group) if key is not None]
            for group in (texts, asked.get((dependent, name), ()))
        )
        if keys and now_keys and min(now_keys) < min(keys):
            yield f"{path}: {dependent} gets {name} {min(now_keys)}, got {min(keys)}"


def _by_name(ecosystem: str, packages: Iterable[Held]) -> dict[str, dict[Any, str]]:
    """Versions of each package, as they sort → as they are written."""
    found: dict[str, dict[Any, str]] = {}
    for one in packages:
        key = order(ecosystem, one.version) if one.version else None
        if key is not None:
            found.setdefault(one.name, {})[key] = one.version
    return found


def _urls(old: str, new: str) -> list[str]:
    before, after = (set(_URL.findall(_ABOUT.sub("", text))) for text in (old, new))
    return sorted(after - before)


def _comments(path: str, old: str, new: str) -> list[str]:
    if path.endswith(".json"):
        return []
    before, after = (Counter(_comment_texts(text)) for text in (old, new))
    lost = (before - after).elements()
    return [text for text in lost if not _GENERATED.fullmatch(text)]


def _comment_texts(text: str) -> Iterator[str]:
    for line in text.splitlines():
        bare = _STRING.sub(lambda match: "_" * len(match.group()), line)
        at = re.search(r"(?:^|\s)#", bare)
        if at:
            yield line[at.end() - 1 :].strip()


def _form(path: str, old: str, new: str) -> Iterator[str]:
    if old.endswith("\n") != new.endswith("\n"):
        yield "the line end at the end of the file"
    if ("\r\n" in old) != ("\r\n" in new):
        yield "line ends"
    if path.endswith(".json"):
        first, now = _INDENT.search(old), _INDENT.search(new)
        if (first and first[1]) != (now and now[1]):
            yield "indentation"
    if path.endswith("package-lock.json"):
        versions = [json.loads(text).get("lockfileVersion") for text in (old, new)]
        if versions[0] != versions[1]:
            yield f"lockfileVersion {versions[0]} → {versions[1]}"
        if ('"resolved"' in old) != ('"resolved"' in new):
            yield "`resolved` fields"
