"""Made-up packages: what a registry of them would serve, byte for byte the same every time."""

import base64
import gzip
import hashlib
import io
import json
import re
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from packaging.utils import canonicalize_name
from semantic_version import Version

#: Releases are a day apart, in the order in which they were added.
_FIRST_RELEASE = datetime(2020, 1, 1, tzinfo=UTC)

_AGO = re.compile(r"(?P<days>\d+) days? ago")

#: How a deps.dev schema marks a dependency that is not a plain one → the manifest's field.
_SCHEMA_KINDS = {
    "": "dependencies",
    "Dev": "devDependencies",
    "Opt": "optionalDependencies",
    "Peer": "peerDependencies",
}

_SCHEMA_HEAD = re.compile(r"\s*system: *(?P<system>npm|pypi)\s+schema: \|\n(?P<body>.*)", re.DOTALL)


@dataclass(frozen=True)
class NpmRelease:
    """One version of an npm package."""

    manifest: Mapping[str, Any]
    tarball: bytes
    published: str | None
    deprecated: str | None = None

    @property
    def integrity(self) -> str:
        """As a lock states it."""
        return "sha512-" + base64.b64encode(hashlib.sha512(self.tarball).digest()).decode()

    @property
    def file(self) -> str:
        """The tarball's name: without the scope."""
        return f"{self.manifest['name'].rpartition('/')[2]}-{self.manifest['version']}.tgz"

    def document(self, base_url: str) -> dict[str, Any]:
        """What the packument says of it. ``{{npm}}`` in a manifest is the registry's own address."""
        manifest = json.loads(json.dumps(self.manifest).replace("{{npm}}", base_url))
        return {
            **manifest,
            **({"deprecated": self.deprecated} if self.deprecated else {}),
            "dist": {
                "tarball": f"{base_url}{self.manifest['name']}/-/{self.file}",
                "shasum": hashlib.sha1(self.tarball).hexdigest(),
                "integrity": self.integrity,
            },
        }


@dataclass(frozen=True)
class PypiRelease:
    """One file of one version of a Python package."""

    file: str
    content: bytes
    published: str | None
    metadata: str | None
    requires_python: str | None = None
    yanked: str | None = None

    @property
    def sha256(self) -> str:
        """As a lock states it."""
        return hashlib.sha256(self.content).hexdigest()


@dataclass
class Universe:
    """The packages of a test. Its methods add one release each and return the universe."""

    npm_packages: dict[str, dict[str, NpmRelease]] = field(default_factory=dict)
    npm_tags: dict[str, dict[str, str]] = field(default_factory=dict)
    pypi_packages: dict[str, dict[str, PypiRelease]] = field(default_factory=dict)

    @classmethod
    def from_schema(cls, text: str) -> "Universe":
        """The universe of a deps.dev schema (``system: npm|pypi``, then indented package, version,
        ``name@constraint``, the last with ``Dev|``, ``Opt|`` or ``Peer|`` before it).

        Raises ValueError for anything else.
        """
        head = _SCHEMA_HEAD.fullmatch(text)
        if head is None:
            raise ValueError("not a schema: `system: npm|pypi` and `schema: |` must come first")
        universe = cls()
        for name, version, asked in _schema_releases(head["body"]):
            if head["system"] == "npm":
                universe.npm(
                    name,
                    version,
                    dependencies=asked.get("dependencies"),
                    devDependencies=asked.get("devDependencies"),
                    peerDependencies=asked.get("peerDependencies"),
                    optionalDependencies=asked.get("optionalDependencies"),
                )
            elif set(asked) <= {"dependencies"}:
                needs = asked.get("dependencies", {})
                universe.pypi(name, version, [one + spec for one, spec in needs.items()])
            else:
                raise ValueError(f"{name} {version}: a Python schema has plain dependencies only")
        return universe

    def npm(
        self,
        name: str,
        version: str,
        dependencies: Mapping[str, str] | None = None,
        devDependencies: Mapping[str, str] | None = None,  # noqa: N803 (npm's names)
        peerDependencies: Mapping[str, str] | None = None,  # noqa: N803
        optionalDependencies: Mapping[str, str] | None = None,  # noqa: N803
        deprecated: str | None = None,
        files: Mapping[str, str] | None = None,
        manifest: Mapping[str, Any] | None = None,
        published: str | None = "",
    ) -> Self:
        """``files``: more than package.json and index.js. ``manifest``: further fields (``engines``,
        ``bin``, ``peerDependenciesMeta`` …). ``published``: as ``published_at`` reads it."""
        asked = {
            "dependencies": dependencies,
            "devDependencies": devDependencies,
            "peerDependencies": peerDependencies,
            "optionalDependencies": optionalDependencies,
        }
        reported = {"name": name, "version": version, **(manifest or {})}
        reported |= {kind: dict(names) for kind, names in asked.items() if names}
        texts = {
            "package.json": json.dumps(reported, indent=2) + "\n",
            "index.js": "",
            **(files or {}),
        }
        releases = self.npm_packages.setdefault(name, {})
        releases[version] = NpmRelease(
            reported,
            _tarball("package", texts),
            published_at(published, len(releases)),
            deprecated,
        )
        return self

    def npm_tag(self, name: str, tag: str, version: str) -> Self:
        """A dist-tag. Without one, ``latest`` is the highest version that is no pre-release."""
        self.npm_tags.setdefault(name, {})[tag] = version
        return self

    def pypi(
        self,
        name: str,
        version: str,
        requires: Iterable[str] = (),
        requires_python: str | None = None,
        yanked: str | None = None,
        extras: Mapping[str, Iterable[str]] | None = None,
        *,
        sdist_only: bool = False,
        files: Mapping[str, str] | None = None,
        tag: str = "py3-none-any",
        published: str | None = "",
    ) -> Self:
        """``yanked``: the reason. ``sdist_only``: no wheel, and an sdist whose requirements only a
        build could tell (building it fails: nothing here may be built). ``files``: more of a wheel or an
        sdist; ``tag``: which Pythons it is for; ``published``: as ``published_at`` reads it."""
        releases = self.pypi_packages.setdefault(canonicalize_name(name), {})
        metadata = _metadata(name, version, requires, requires_python, extras or {})
        stem = f"{canonicalize_name(name).replace('-', '_')}-{version}"
        if sdist_only:
            texts = {"setup.py": 'raise SystemExit("built")\n', "PKG-INFO": _legacy(metadata)}
            texts |= files or {}
            file, content = f"{stem}.tar.gz", _tarball(stem, texts)
        else:
            file, content = f"{stem}-{tag}.whl", _wheel(stem, metadata, files or {}, tag)
        releases[file] = PypiRelease(
            file,
            content,
            published_at(published, len(releases)),
            None if sdist_only else metadata,
            requires_python,
            yanked,
        )
        return self

    def packument(self, name: str, base_url: str, *, abbreviated: bool) -> dict[str, Any] | None:
        """npm's document of a package; None where there is no such package."""
        releases = self.npm_packages.get(name)
        if releases is None:
            return None
        days = {
            version: release.published
            for version, release in releases.items()
            if release.published is not None
        }
        newest = max(days.values(), default="2020-01-01T00:00:00.000Z")
        document: dict[str, Any] = {
            "name": name,
            "dist-tags": {"latest": _latest(releases), **self.npm_tags.get(name, {})},
            "versions": {v: release.document(base_url) for v, release in releases.items()},
        }
        if abbreviated:
            return document | {"modified": newest}
        # A registry that knows no dates has no "time" at all.
        times = {"created": min(days.values()), "modified": newest, **days} if days else None
        return document | {"_id": name, **({"time": times} if times else {})}

    def npm_tarball(self, name: str, file: str) -> bytes | None:
        """A tarball's bytes; None where there is none of that name."""
        releases = self.npm_packages.get(name, {}).values()
        return next((one.tarball for one in releases if one.file == file), None)

    def pypi_file(self, file: str) -> PypiRelease | None:
        """A release by the name of its file."""
        return next((files[file] for files in self.pypi_packages.values() if file in files), None)


def _schema_releases(body: str) -> list[tuple[str, str, dict[str, dict[str, str]]]]:
    releases: list[tuple[str, str, dict[str, dict[str, str]]]] = []
    name = ""
    indents: list[int] = []
    for line in filter(str.strip, body.splitlines()):
        indent, word = len(line) - len(line.lstrip()), line.strip()
        indents = [one for one in indents if one < indent] + [indent]
        match len(indents):
            case 1:
                name = word
            case 2:
                releases.append((name, word, {}))
            case 3:
                kind, _, asked = word.rpartition("|")
                package, at, spec = asked.rpartition("@")
                if kind not in _SCHEMA_KINDS or not at:
                    raise ValueError(f"{word!r} is no dependency that a schema can have")
                releases[-1][2].setdefault(_SCHEMA_KINDS[kind], {})[package] = spec
            case _:
                raise ValueError(f"{word!r} is indented too far for a schema")
    return releases


def _latest(versions: Iterable[str]) -> str:
    def rank(version: str) -> tuple[bool, Version]:
        parsed = Version(version)
        return not parsed.prerelease, parsed

    return max(versions, key=rank)


def published_at(published: str | None, number: int) -> str | None:
    """Return when a release was published, as registries write it: a moment (ISO 8601), or ``3 days ago``;
    empty: a day after the release before it (``number`` releases came before). None: the registry does not
    say."""
    if published is None:
        return None
    if ago := _AGO.fullmatch(published):
        at = datetime.now(UTC) - timedelta(days=int(ago["days"]))
    elif published:
        at = datetime.fromisoformat(published)
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
    else:
        at = _FIRST_RELEASE + timedelta(days=number)
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def _tarball(folder: str, texts: Mapping[str, str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, text in texts.items():
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size = len(text.encode())
            tar.addfile(entry, io.BytesIO(text.encode()))
    return gzip.compress(packed.getvalue(), mtime=0)


def _metadata(
    name: str,
    version: str,
    requires: Iterable[str],
    requires_python: str | None,
    extras: Mapping[str, Iterable[str]],
) -> str:
    lines = ["Metadata-Version: 2.3", f"Name: {name}", f"Version: {version}"]
    if requires_python:
        lines.append(f"Requires-Python: {requires_python}")
    lines += [f"Requires-Dist: {one}" for one in requires]
    for extra, needs in extras.items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f'Requires-Dist: {one} ; extra == "{extra}"' for one in needs]
    return "\n".join(lines) + "\n"


def _legacy(metadata: str) -> str:
    """Before version 2.2 an sdist's metadata may lie about requirements: a client has to build."""
    kept = [line for line in metadata.splitlines() if not line.startswith("Requires-Dist")]
    return "\n".join(["Metadata-Version: 2.1", *kept[1:]]) + "\n"


def _wheel(stem: str, metadata: str, files: Mapping[str, str], tag: str) -> bytes:
    info = f"{stem}.dist-info"
    texts = {
        f"{stem.rpartition('-')[0]}/__init__.py": "",
        **files,
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\n"
        f"Tag: {tag}\n",
    }
    record = [f"{name},sha256={_record_hash(text)},{len(text)}" for name, text in texts.items()]
    texts[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,"]) + "\n"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in texts.items():
            archive.writestr(zipfile.ZipInfo(name), text)
    return packed.getvalue()


def _record_hash(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
