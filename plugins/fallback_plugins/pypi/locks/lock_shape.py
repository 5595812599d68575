"""The shape that a lock must have before anything in it is used.

A lock comes from the repository. Its names and versions become requirements for uv, names of scratch files
and arguments of commands, so they may be names and versions only.
"""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from fallback_audit.vocabulary import RefusalReason
from fallback_tier.errors import RecipeError

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?$")]
VersionText = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9.!+_-]*$")]
Pin = Annotated[str, StringConstraints(pattern=r"^={0,3} ?[A-Za-z0-9][A-Za-z0-9.!+_-]*$|^\*$")]
PythonVersion = Annotated[str, StringConstraints(pattern=r"^(?:[0-9]+(?:\.[0-9]+)*)?$")]


class _Shape(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, defer_build=True)


class _File(_Shape):
    url: str = ""
    path: str = ""
    hash: str = ""


class _Asked(_Shape):
    name: Name
    version: VersionText | None = None
    specifier: str = ""
    marker: str = ""
    extra: list[Name] = []
    extras: list[Name] = []
    editable: str | None = None
    virtual: str | None = None
    directory: str | None = None


class _UvMetadata(_Shape):
    requires_dist: list[_Asked] = Field(default=[], alias="requires-dist")
    requires_dev: dict[str, list[_Asked]] = Field(default={}, alias="requires-dev")
    provides_extras: list[Name] = Field(default=[], alias="provides-extras")


class _UvPackage(_Shape):
    name: Name
    version: VersionText | None = None
    source: dict[str, str]
    dependencies: list[_Asked] = []
    optional: dict[Name, list[_Asked]] = Field(default={}, alias="optional-dependencies")
    development: dict[str, list[_Asked]] = Field(default={}, alias="dev-dependencies")
    wheels: list[_File] = []
    sdist: _File | None = None
    metadata: _UvMetadata = _UvMetadata()


class _UvManifest(_Shape):
    members: list[str] = []
    constraints: list[_Asked] = []
    overrides: list[_Asked] = []


class UvLockShape(_Shape):
    """A uv.lock."""

    requires_python: str = Field(default="", alias="requires-python")
    package: list[_UvPackage] = []
    manifest: _UvManifest = _UvManifest()
    options: dict[str, Any] = {}


class _PoetrySource(_Shape):
    type: str = ""
    url: str = ""


class _PoetryPackage(_Shape):
    name: Name
    version: VersionText
    description: str = ""
    python_versions: str = Field(default="*", alias="python-versions")
    source: _PoetrySource = _PoetrySource()
    files: list[dict[str, Any]] = []
    dependencies: "dict[Name, str | _PoetryAsked | list[str | _PoetryAsked]]" = {}
    extras: dict[str, list[str]] = {}


class _PoetryAsked(_Shape):
    version: str = "*"
    markers: str = ""
    optional: bool = False
    extras: list[Name] = []


class _PoetryMetadata(_Shape):
    lock_version: str = Field(default="", alias="lock-version")
    python_versions: str = Field(default="*", alias="python-versions")
    content_hash: str = Field(default="", alias="content-hash")
    files: dict[str, list[dict[str, Any]]] = {}


class PoetryLockShape(_Shape):
    """A poetry.lock."""

    package: list[_PoetryPackage] = []
    metadata: _PoetryMetadata = _PoetryMetadata()


class _PipenvPackage(_Shape):
    version: Pin | None = None
    extras: list[Name] = []
    markers: str = ""
    index: str | None = None
    hashes: list[str] = []


class _PipenvRequires(_Shape):
    python_version: PythonVersion = ""
    python_full_version: PythonVersion = ""


class _PipenvSource(_Shape):
    name: str | None = None


class _PipenvMeta(_Shape):
    hash: dict[str, str] = {}
    requires: _PipenvRequires = _PipenvRequires()
    sources: list[_PipenvSource] = []


class _PipenvLock(_Shape):
    meta: _PipenvMeta = Field(default=_PipenvMeta(), alias="_meta")


class _Named(_Shape):
    name: Name


def check_pipenv(path: str, document: Any) -> None:
    """Raise RecipeError for a Pipfile.lock that pipenv can't have written."""
    check(path, document, _PipenvLock)
    for section, entries in document.items():
        if section != "_meta" and isinstance(entries, dict):
            for name, entry in entries.items():
                check(path, {"name": name}, _Named)
                if isinstance(entry, dict):
                    check(path, entry, _PipenvPackage)


def check(path: str, document: Any, shape: type[_Shape]) -> None:
    """Raise RecipeError for a document that its client can't have written."""
    try:
        shape.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        location = ".".join(map(str, first["loc"]))
        raise RecipeError(
            RefusalReason.RECIPE_UNSUPPORTED,
            f"{path} is not as its client writes it, at {location[:100]!r}: {first['msg']}.",
            next_step="Make a new one with its client.",
        ) from error
