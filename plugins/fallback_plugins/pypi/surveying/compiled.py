"""Compiled requirements: an ``.in`` says what is asked for, the ``.txt`` made from it what is installed."""

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from fallback_plugins.pypi.manifests.kinds import Kind, kind_of
from fallback_plugins.pypi.manifests.requirements import logical_lines
from fallback_plugins.pypi.manifests.requirements_files import bare_line, includes, is_closed
from fallback_plugins.pypi.surveying.out_of_step import Asked, LockStep, asked_by

_UV = "uv pip compile"


def decided_by(texts: Mapping[str, str]) -> dict[str, str]:
    """Each ``.in`` of a set that has been compiled, with the ``.txt`` that was made from it."""
    pairs = ((path, str(PurePosixPath(path).with_suffix(".txt"))) for path in texts)
    return {
        path: target
        for path, target in pairs
        if path.endswith(".in") and is_closed(texts.get(target, ""))
    }


def steps(texts: Mapping[str, str]) -> Iterator[LockStep]:
    """Each compiled file of a set, with what the ``.in`` beside it asks for."""
    for source, target in decided_by(texts).items():
        compiler = _UV if _UV in texts[target] else "pip-compile"
        asked = tuple(_requests(source, texts[source]))
        yield LockStep(target, f"{compiler} {source}", _held(target, texts), asked)


def _requests(path: str, text: str) -> Iterator[Asked]:
    if kind_of(path) is Kind.REQUIREMENTS:
        for line in logical_lines(text):
            yield from asked_by(path, bare_line(line))


def _held(path: str, texts: Mapping[str, str]) -> dict[str, list[str]]:
    """What a compiled file holds, and those that it includes."""
    held: dict[str, list[str]] = {}
    waiting, seen = [path], set[str]()
    while waiting:
        here = waiting.pop()
        text = texts.get(here)
        if text is None or here in seen:
            continue
        seen.add(here)
        waiting += [other for other, constrains in includes(here, text) if not constrains]
        for one in _requests(here, text):
            pin = one.declaration.pin
            held.setdefault(one.name, []).extend([pin.version] if pin else [])
    return held
