"""Releases without a wheel: which of them a registry has, and what their archives say that they require.
Nothing in an archive is run.

setuptools writes what setup.py computed into ``requires.txt`` when the archive is made; others write it
into the metadata. distutils writes nothing: its setup.py is read, if it computes nothing.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

from packaging.markers import InvalidMarker, Marker
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)

from fallback_plugins.pypi.archives import MemberTooLargeError, fetched, member_text, page
from fallback_plugins.pypi.manifests.metadata import REQUIRES, setup_call
from fallback_plugins.pypi.manifests.pyproject import tables, texts
from fallback_plugins.pypi.manifests.requirements import requirement_in
from fallback_plugins.pypi.resolving.registry import Metadata, ReleaseFile, file_name
from fallback_tier.errors import RecipeError

#: Of what an archive says that it requires: a few lines, as a rule.
MAX_REQUIRES_BYTES = 1_000_000

#: What a setup.py has that runs setuptools' own setup(), and how it may require more than it writes out.
_SETUP = re.compile(r"^[ \t]*(?:from|import) (?:setuptools|distutils)\b", re.MULTILINE)
_COMPUTES = re.compile(
    r"\b(?:pbr|exec|eval|setdefault)\b|\.(?:install_requires|extras_require)\b"
    r"|\][ \t]*(?:\.(?:append|extend|insert|update)\b|\+=)|\[:\][ \t]*="
)

_ARCHIVE = re.compile(r"(?P<release>.+)\.(?:tar\.(?:gz|bz2|xz|Z)|tgz|zip)", re.IGNORECASE)
_INTERPRETER = re.compile(r"(?P<kind>[a-z]+)3(?P<minor>\d*)")


@dataclass(frozen=True)
class Sdist:
    """A release without a wheel. ``file``: its archive; None: it is not known."""

    name: str
    version: str
    file: ReleaseFile | None
    requires_python: str = ""

    @property
    def stem(self) -> str:
        """The beginning of the name of a wheel of it."""
        return f"{self.name.replace('-', '_')}-{self.version}"

    def stub(self, said: Sequence[str]) -> str:
        """The metadata of a wheel of it; ``said``: as ``sdist_requirements``."""
        lines = ["Metadata-Version: 2.1", f"Name: {self.name}", f"Version: {self.version}", *said]
        if self.requires_python:
            lines.append(f"Requires-Python: {self.requires_python}")
        return "\n".join([*lines, ""])


def sdists_of(index: str, name: str, python: str) -> tuple[Sdist, ...] | None:
    """The releases of a package in a simple index that have no wheel for this Python (``3.9``) or a later
    one, and are not yanked; None: the index does not show its page.

    Raises ToolFailedError where the registry does not answer now.
    """
    address = f"{index.rstrip('/')}/{name}/"
    content = page(address)
    if content is None:
        return None
    found: dict[str, Sdist] = {}
    built, is_listed = set(), False
    for attributes in _files(content):
        url = urljoin(address, attributes.get("href") or "")
        file, archive = file_name(url), _ARCHIVE.fullmatch(file_name(url))
        try:
            if archive is None:
                _, version, _, tags = parse_wheel_filename(file)
                is_listed = True
                if any(_serves(tag.interpreter, tag.abi, python) for tag in tags):
                    built.add(str(version))
                continue
            own_name, version = parse_sdist_filename(f"{archive['release']}.tar.gz")
        except (InvalidWheelFilename, InvalidSdistFilename):
            continue
        is_listed = True
        if own_name == name and "data-yanked" not in attributes:
            parts = urlsplit(url)
            digest = parts.fragment.replace("=", ":", 1)
            place = ReleaseFile(file, digest, parts._replace(fragment="").geturl())
            asked = _specifier(attributes.get("data-requires-python") or "")
            found.setdefault(str(version), Sdist(name, str(version), place, asked))
    if not is_listed:
        return None  # a page for people: of a login, or of another format
    return tuple(it for version, it in found.items() if version not in built)


def _files(content: bytes) -> Iterator[Mapping[str, str | None]]:
    """The links of a page with their attributes; of one in JSON (PEP 691), as that of HTML has them."""
    try:
        files = tables(json.loads(content).get("files"))
    except (ValueError, AttributeError, RecursionError):
        links = _Links()
        links.feed(content.decode("utf-8", "replace"))
        yield from links.found
        return
    for one in files:
        hashes = one.get("hashes")
        digest = str(hashes.get("sha256", "")) if isinstance(hashes, dict) else ""
        href = f"{one.get('url', '')}#sha256={digest}"
        found = {"href": href, "data-requires-python": str(one.get("requires-python") or "")}
        yield found | ({"data-yanked": ""} if one.get("yanked") else {})


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found.append(dict(attrs))


def _serves(interpreter: str, abi: str, python: str) -> bool:
    """Is a wheel with these tags for this Python or a later one?"""
    tag = _INTERPRETER.fullmatch(interpreter)
    if tag is None:
        return False
    least = int(python.partition(".")[2].partition(".")[0] or 0)
    return tag["kind"] == "py" or abi == "abi3" or not tag["minor"] or int(tag["minor"]) >= least


def _specifier(text: str) -> str:
    try:
        return str(SpecifierSet(text))
    except InvalidSpecifier:
        return ""


def sdist_requirements(file: ReleaseFile | None) -> tuple[str, ...] | None:
    """What it requires, as lines of metadata (``Requires-Dist``, ``Provides-Extra``) with the conditions
    of each; None: it can't be had, or does not say, or not so that it can be read.

    Raises ToolFailedError where the registry does not answer now.
    """
    content = fetched(file.url, file.hash) if file is not None else None
    if content is None:
        return None
    try:
        return _said_in(content, _name_in(file))
    except (MemberTooLargeError, InvalidMarker, RecipeError):
        return None


def _said_in(content: bytes, name: str) -> tuple[str, ...] | None:
    """By the archive's metadata if its format says that it is complete, by the records of setuptools, by
    the requirements in other metadata, or by a setup.py that computes none. Raises InvalidMarker,
    MemberTooLargeError, RecipeError."""
    metadata = Metadata(_top(content, "PKG-INFO"))
    if metadata.lists_requirements:
        return tuple(_listed(metadata))
    text = member_text(content, _record(name, "requires.txt"), MAX_REQUIRES_BYTES)
    if text is not None:
        return tuple(_parsed(text))
    if member_text(content, _record(name, "SOURCES.txt"), MAX_REQUIRES_BYTES) is not None:
        return ()  # setuptools writes the one only if something is required, and the other always
    if metadata.requirements:
        return tuple(_listed(metadata))
    if _top(content, "pyproject.toml"):
        return None
    written = _from_script(_top(content, "setup.py"), _top(content, "setup.cfg"))
    return None if written is None else tuple(_parsed(written))


def _name_in(file: ReleaseFile | None) -> str:
    """The canonical name of a release; empty: its archive's name does not say."""
    archive = _ARCHIVE.fullmatch(file.name) if file is not None else None
    try:
        return parse_sdist_filename(f"{archive['release']}.tar.gz")[0] if archive else ""
    except InvalidSdistFilename:
        return ""


def _record(name: str, record: str) -> Callable[[str], bool]:
    """Finds a record of setuptools on the release itself: test data may have those of others."""

    def is_own(member: str) -> bool:
        *_, folder, file = ("", *member.split("/"))
        own = canonicalize_name(folder.removesuffix(".egg-info"))
        return file == record and folder.endswith(".egg-info") and name in {"", own}

    return is_own


def _top(content: bytes, wanted: str) -> str:
    """The text of a file in the archive's one folder; empty if there is none."""
    return (
        member_text(
            content,
            lambda member: member.count("/") == 1 and member.endswith(f"/{wanted}"),
            MAX_REQUIRES_BYTES,
        )
        or ""
    )


def _listed(metadata: Metadata) -> Iterator[str]:
    for extra in metadata.extras:
        yield f"Provides-Extra: {extra}"
    for asked in metadata.requirements:
        if asked.url is not None:
            raise InvalidMarker(str(asked))
        yield f"Requires-Dist: {asked}"


def _from_script(script: str, settings: str) -> str | None:
    """What a setup.py lists, as setuptools would record it; None if it, or another file, may require more
    than it writes out."""
    call = setup_call(script)
    if not (call.is_whole and "name" in call.keywords and _SETUP.search(script)):
        return None
    if _COMPUTES.search(script) or "require" in settings:
        return None
    lines: list[str] = []
    for word, value in zip(REQUIRES, call.required, strict=True):
        if value is None and word in script:
            return None
        for extra, listed in (value if isinstance(value, dict) else {"": value or []}).items():
            if not isinstance(listed, list) or len(texts(listed)) < len(listed):
                return None
            lines += [*([f"[{extra}]"] if extra else ()), *listed]
    return "\n".join(lines)


def _parsed(text: str) -> Iterator[str]:
    """The lines before the first section, and those of each ``[extra:marker]``. Raises InvalidMarker for
    what is neither, and for an address, which is not fetched."""
    conditions: list[str] = []
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            extra, _, marker = line[1:-1].partition(":")
            conditions = [str(Marker(marker))] if marker.strip() else []
            if extra.strip():
                name = canonicalize_name(extra.strip())
                conditions.append(f"extra == '{name}'")
                yield f"Provides-Extra: {name}"
        elif line:
            asked = requirement_in(line)
            if asked is None or asked.url is not None:
                raise InvalidMarker(line)
            own = [str(asked.marker)] if asked.marker else []
            asked.marker = None
            marker = " and ".join(f"({it})" for it in (*own, *conditions))
            yield f"Requires-Dist: {asked}" + (f" ; {marker}" if marker else "")
