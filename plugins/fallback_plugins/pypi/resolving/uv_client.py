"""``uv pip compile`` in a scratch folder: what a registry has, and what a set of requirements becomes.

Only requirement lines that we wrote ourselves are handed in. Nothing is built, no project is looked at,
and no option of the repository's reaches the command line.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fallback_plugins.pypi.resolving.resolver import (
    UvRefusedError,
    laid_out,
    own_words,
    requirement_line,
    run_uv,
)
from fallback_plugins.shared.scratch import scratch_folder
from fallback_plugins.shared.tree import DependencyEdge, DependencyTree, Node
from fallback_tier.execution import ClientRunner

#: For a question about one release: a fix by text is not to wait for a registry. By default uv tries a
#: refused connection again for 6 s (measured), and waits 30 s for an answer.
_QUICK = {"UV_HTTP_RETRIES": "0", "UV_HTTP_TIMEOUT": "5"}

#: Our own names for the scratch files; the command's option of each.
_FILES = {
    "requirements.in": (),
    "constraints.txt": ("--constraint",),
    "overrides.txt": ("--override",),
}

_LINE = re.compile(
    r"^(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==(?P<version>[^\s;#]+)"
    r"[^#\n]*?(?:#[ \t]*via[ \t]+(?P<via>.*))?$",
    re.MULTILINE,
)
_HASH = re.compile(r"--hash=(\S+)")
_YANKED = re.compile(
    r"`(?P<name>[^`=\[]+)==(?P<version>[^`]+)` is yanked(?: \(reason: \"(?P<reason>.*)\"\))?"
)
_ANYTHING = re.compile("")
_UNPUBLISHED = re.compile(r"there (?:is|are) no versions? of")


@dataclass(frozen=True)
class Wanted:
    """What is to be resolved: PEP 508 lines."""

    requirements: tuple[str, ...]
    constraints: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class UvClient:
    """The real uv. Methods raise RecipeError (RESOLVER_FAILED, in uv's own words), ToolMissingError."""

    clients: ClientRunner

    def fault_of(self, package: str, version: str) -> str | None:
        """Why this release is not to be chosen ("is yanked …", "was never published"); None: it may be.

        A release without a wheel for this Python can't be judged, and passes.
        """
        refusal: UvRefusedError | None = None
        try:
            output = self._compile(Wanted((f"{package}=={version}",)), "--no-deps", quick=True)
        except UvRefusedError as error:
            refusal, output = error, error.output
        yanked = _YANKED.search(output)
        if yanked:
            return _yanked(yanked)
        if refusal is None or "no usable wheels" in output:
            return None
        if _UNPUBLISHED.search(output):
            return "was never published"
        raise refusal

    def yanked_of(self, releases: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
        """Those of many releases (each of another package) that are yanked, in one question.

        Raises RecipeError where one of them can't be had; UvRefusedError tells no more than that.
        """
        lines = tuple(f"{package}=={version}" for package, version in releases)
        output = self._compile(Wanted(lines), "--no-deps", quick=True)
        found = {
            (canonicalize_name(match["name"]), match["version"]): _yanked(match)
            for match in _YANKED.finditer(output)
        }
        return {release: found[release] for release in releases if release in found}

    def next_release(self, package: str, version: str) -> str:
        """The lowest release above a version that is not yanked."""
        options = ("--no-deps", "--resolution=lowest")
        wanted = Wanted((f"{package}>{version}",))
        found, *_ = _LINE.finditer(self._compile(wanted, *options, quick=True, needs=_LINE))
        return found["version"]

    def hashes(self, package: str, version: str) -> tuple[str, ...]:
        """The hashes of every file of one release."""
        wanted = Wanted((f"{package}=={version}",))
        output = self._compile(wanted, "--no-deps", "--generate-hashes", needs=_HASH)
        return tuple(_HASH.findall(output))

    def resolve(self, source: str, wanted: Wanted, *options: str) -> DependencyTree:
        """The tree that a set of requirements becomes on this machine; ``source`` names its root."""
        return _tree(source, wanted, self._compile(wanted, *options))

    def _compile(
        self,
        wanted: Wanted,
        *options: str,
        quick: bool = False,
        needs: re.Pattern[str] = _ANYTHING,
    ) -> str:
        """uv's answer. Raises UvRefusedError where it has none, or nothing that it ``needs``."""
        lines = dict(
            zip(_FILES, (wanted.requirements, wanted.constraints, wanted.overrides), strict=True)
        )
        texts = {
            name: "".join(f"{requirement_line(it)}\n" for it in held)
            for name, held in lines.items()
        }
        with scratch_folder("uv") as folder:
            laid_out(folder, texts)
            files = [word for name, option in _FILES.items() for word in (*option, name)]
            command = ["pip", "compile", *files, *options, "--no-build", "--no-header"]
            command.append("--annotation-style=line")
            result = run_uv(self.clients, folder, command, _QUICK if quick else None)
            if result.ok and needs.search(result.output):
                return result.output
            message = "no answer in time" if result.timed_out else own_words(result.output, folder)
            raise UvRefusedError(f"uv could not resolve it: {message}.", result.output)


def _yanked(match: re.Match[str]) -> str:
    return f"is yanked ({match['reason']})" if match["reason"] else "is yanked"


def _tree(source: str, wanted: Wanted, output: str) -> DependencyTree:
    """The tree from uv's annotations: they name who asks, not for which range."""
    versions = {
        canonicalize_name(match["name"]): (match["version"], match["via"] or "")
        for match in _LINE.finditer(output)
    }
    asks: dict[str, list[DependencyEdge]] = {}
    for name, (version, via) in versions.items():
        for dependent in _dependents(via):
            asks.setdefault(dependent, []).append(DependencyEdge(name, "", f"{name} {version}"))
    nodes = {
        f"{name} {version}": Node(f"{name} {version}", name, version, tuple(asks.get(name, ())))
        for name, (version, _) in versions.items()
    }
    parsed = map(Requirement, wanted.requirements)
    declared: dict[str, str] = {
        canonicalize_name(item.name): str(item.specifier) for item in parsed
    }
    roots = tuple(
        DependencyEdge(ask.name, declared.get(ask.name, ""), ask.to) for ask in asks.get("", ())
    )
    return DependencyTree(source, nodes, (Node(source, source, "", roots),))


def _dependents(via: str) -> Iterator[str]:
    """Canonical names; the root's is empty. A constraint asks for nothing."""
    for dependent in filter(None, (part.strip() for part in via.split(","))):
        if dependent.startswith("-r"):
            yield ""
        elif not dependent.startswith("-"):
            yield canonicalize_name(dependent.partition("[")[0])
