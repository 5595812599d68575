"""Output of npm, yarn and pnpm that can't resolve: their errors in short, and what these blame."""

import re
from collections.abc import Iterator
from contextlib import suppress
from http import HTTPStatus
from urllib.parse import unquote

from fallback_audit.vocabulary import BlockerKind
from fallback_plugins.npm.client import Files
from fallback_plugins.npm.manifests.manifest import declared, parse_manifest
from fallback_plugins.npm.manifests.specs import admits
from fallback_plugins.shared.ladder import PROJECT, registry_blocker
from fallback_tier.errors import RecipeError
from fallback_tier.hosts import host_in
from fallback_tier.outcome import Blocker

#: Characters of a client's output that are repeated.
_MAX_WORDS = 900

#: Lines that name no cause. npm's advice is never followed: --force hides what a refusal has to say.
_NOISE = (
    *("complete log", "full report", "eresolve-report", "--force", "--legacy-peer-deps"),
    *("this command with", "Visit https", "In most cases", "Note that you can also"),
)
_ERROR = re.compile(r"(?:npm error|error:?|ERR_PNPM_\S+|\s*ERROR)(?:\s+|$)")

#: Repeats are bounded, as an output can hold one long word: npm's names have at most 214 characters.
_NAME = r"(?P<name>(?:@[^@\s/\"']{1,214}/)?[^@\s/\"']{1,214})"
_REQUIREMENT = re.compile(
    rf"(?<!\S){_NAME}@\"(?P<spec>[^\"]{{0,1000}})\" from"
    r" (?P<parent>the root project|\S{1,1000}@\S{1,1000})"
)
_FOUND = re.compile(r"Found: \S{1,1000}@(?P<version>\S{1,1000})")
_NO_MATCH = re.compile(
    rf"No matching version found for {_NAME}@(?P<spec>.*?)"
    r"(?: with a date before (?P<date>.*?)| while fetching it from \S+)?\.?$"
    r"|Couldn't find any versions for \"(?P<yarn>[^\"]+)\" that matches \"(?P<range>[^\"]*)\"",
    re.MULTILINE,
)
_NO_PACKAGE = re.compile(
    rf"requested resource '{_NAME}@(?P<spec>[^']*)' could not be found"
    r"|Couldn't find package \"(?P<yarn>@?[^\"@]+)(?:@(?P<range>[^\"]*))?\""
    r"|(?<!\S)(?P<pnpm>\S{1,1000}) is not in the npm registry"
)
_ENGINE = re.compile(
    r"(?:of node/npm: |incompatible with \"|error )(?P<label>@?[^\s@\":]{1,214}@[^\s@\":]{1,256})"
    r"(?=[\s\":])[\s\S]{0,2000}?"
    r"(?:Required: \{\"(?P<engine>\w+)\":\"|Expected version:? \"?)(?P<spec>[^\"\n]+)"
)
_NOT_FETCHED = re.compile(
    r"EALLOW(?:REMOTE|GIT|FILE|DIRECTORY)|git ls-remote (?:-\S+ )*(?P<url>\S+)"
)
_YARNS_ANSWER = re.compile(r"Error: (?P<url>https?://\S+): (?P<text>.+)")

#: The dependent of a missing package, in npm's most detailed log, and in output of pnpm and yarn.
_PARENT = re.compile(
    rf"placeDep \S+ {_NAME}@ OK for: (?P<npm>\S+) want: (?P<spec>.*)"
    r"|installing the dependencies of (?P<pnpm>\S+)|required by \"(?P<yarn>[^\"]+)\""
)

#: npm names no parent then; ``placeDep`` of its most detailed log does.
WITHOUT_PARENT = re.compile(r"code E(?:TARGET|404|ALLOW\w+)\b")


def own_words(output: str) -> str:
    """Return a client's message on one line, bounded: its errors, without references to log files; if it
    marks none, all that it printed."""
    lines = [" ".join(line.split()) for line in output.splitlines()]
    lines = [
        line
        for line in lines
        if line and not line.startswith("npm warn") and "placeDep" not in line
    ]
    lines = [line for line in lines if not any(word in line for word in _NOISE)]
    errors = [line for line in lines if _ERROR.match(line)]
    message = "; ".join(filter(None, (_without_mark(line) for line in errors or lines)))
    return message[:_MAX_WORDS].rstrip(" ;.") or "nothing"


def blockers_in(output: str, files: Files, package: str = "") -> tuple[Blocker, ...]:
    """Return what a client's output blames, each with the file that declares it; nothing if the output
    names no known cause. ``package``: the only package that the client had to find."""
    for reader in (_conflicts, _engines, _addresses, _missing, _registry):
        blockers = tuple(reader(output, files, package))
        if blockers:
            return blockers
    return ()


def file_of(files: Files, package: str) -> str:
    """Return the manifest that declares a package; if none does, the lock or the root's manifest."""
    for path, text in files.manifests.items():
        with suppress(RecipeError):
            if declared(parse_manifest(path, text), package):
                return path
    return files.lock or files.root_manifest


def _conflicts(output: str, files: Files, _package: str) -> Iterator[Blocker]:
    """Yield a requirement of npm's ERESOLVE that excludes the found version; another package's first."""
    _, _, unresolved = output.partition("Could not resolve dependency:")
    first = _REQUIREMENT.search(unresolved)
    if first is None:
        return
    found_version = _FOUND.search(output)
    asks = [match for match in _REQUIREMENT.finditer(output) if match["name"] == first["name"]]
    excluding = [
        match
        for match in asks
        if found_version is None or not admits(match["spec"], found_version["version"])
    ]
    asks = sorted(excluding or [first], key=lambda match: match["parent"] == "the root project")
    parent, name = asks[0]["parent"], asks[0]["name"]
    is_root = parent == "the root project"
    yield Blocker(
        kind=BlockerKind.CONFLICT,
        package=PROJECT if is_root else _label(parent),
        constraint=f"{name} {asks[0]['spec']}",
        file=file_of(files, name if is_root else _label(parent).partition(" ")[0]),
    )


def _engines(output: str, files: Files, _package: str) -> Iterator[Blocker]:
    if ("engine" in output or "UNSUPPORTED_ENGINE" in output) and (match := _ENGINE.search(output)):
        label = _label(match["label"])
        yield Blocker(
            kind=BlockerKind.RUNTIME,
            package=label,
            constraint=f"{match['engine'] or 'node'} {match['spec']}",
            file=file_of(files, label.partition(" ")[0]),
        )


def _addresses(output: str, files: Files, _package: str) -> Iterator[Blocker]:
    refused = _NOT_FETCHED.search(output)
    if refused is None:
        return
    parents = [*_PARENT.finditer(output)]
    last = parents[-1] if parents else None
    name = (last["name"] if last else None) or "a package"
    address = (last["spec"] if last else None) or refused["url"] or "an address"
    blocker = Blocker(kind=BlockerKind.ADDRESS, package=name, constraint=address)
    yield blocker.model_copy(update=_required(output, files, name))


def _missing(output: str, files: Files, package: str) -> Iterator[Blocker]:
    """Yield a release that the registry doesn't have, or not at the date that npm's ``before`` sets."""
    if match := _NO_MATCH.search(output):
        name, spec = match["name"] or match["yarn"], match["spec"] or match["range"] or ""
        date, spec = match["date"], spec.removeprefix("npm:")
        blocker = Blocker(kind=BlockerKind.NOT_PUBLISHED, package=name, constraint=spec)
        if date:
            label = f"{name} {spec}"
            blocker = Blocker(kind=BlockerKind.AGE_RULE, package=label, constraint=f"before={date}")
        yield blocker.model_copy(update=_required(output, files, name, spec))
    elif match := _NO_PACKAGE.search(output):
        name = match["name"] or match["yarn"] or match["pnpm"]
        absent = Blocker(kind=BlockerKind.NOT_PUBLISHED, package=name)
        blocker = registry_blocker(output, _setting(name), name) or absent
        yield blocker.model_copy(update=_required(output, files, name))
    elif package and "E404" in output and (why := registry_blocker(output, _setting(package))):
        yield why.model_copy(update={"package": package, "file": file_of(files, package)})


def _registry(output: str, files: Files, package: str) -> Iterator[Blocker]:
    scope = re.search(
        r"https?://[^/\s]{1,253}/(?:\S{0,500}/)?(@[\w.~-]{1,214})(?:%2[fF]|/)", output
    )
    setting = _setting(package) if package or not scope else f"{scope[1]}:registry"
    if blocker := registry_blocker(output, setting, package):
        yield blocker
    elif answer := _YARNS_ANSWER.search(output):
        is_absent = answer["text"] == "Not found"
        name = unquote(answer["url"].rpartition("/")[2])
        yield Blocker(
            kind=BlockerKind.REGISTRY,
            package=name,
            constraint="" if is_absent else f"it answered {answer['text']!r}",
            host=host_in(answer["url"]),
            setting=setting,
            status=HTTPStatus.NOT_FOUND if is_absent else None,
            file=file_of(files, name),
        )


def _required(output: str, files: Files, name: str, spec: str = "") -> dict[str, str]:
    """Return the package that requires one which is not available, and the file that declares it.

    npm can lack several releases, and its error names one of them. Under an alias, none has that name: then
    only a single dependent is known to be the right one.
    """
    parents = [*_PARENT.finditer(output)]
    of_name = [match for match in parents if not match["npm"] or match["name"] == name]
    of_name = [match for match in of_name if match["spec"] == spec] or of_name
    labels = [match["npm"] or match["pnpm"] or match["yarn"] for match in of_name or parents]
    label = labels[-1] if of_name or len(set(labels)) == 1 else None
    if label is None or label in _roots(files):
        return {"required_by": PROJECT if label else "", "file": file_of(files, name)}
    parent = _label(label)
    return {"required_by": parent, "file": file_of(files, parent.partition(" ")[0])}


def _roots(files: Files) -> set[str]:
    """Return the project and its members, as npm calls them."""
    labels = set()
    for path, text in files.manifests.items():
        with suppress(RecipeError):
            manifest = parse_manifest(path, text)
            labels.add(f"{manifest.get('name')}@{manifest.get('version')}")
    return labels


def _setting(package: str) -> str:
    """Return the key of npm's configuration that names a package's registry."""
    scope = package.partition("/")[0]
    return f"{scope}:registry" if scope.startswith("@") else "registry"


def _label(identity: str) -> str:
    name, _, version = identity.rpartition("@")
    return f"{name} {version}" if name else identity


def _without_mark(line: str) -> str:
    return line.removeprefix("npm error").removeprefix("error").strip(" :")
