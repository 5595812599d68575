"""The resolution of an install command's manifests: by uv, or by their pins (ADR-0099).

Nothing is built: an sdist's metadata is read from its archive. What can't be read is ``unresolved``.
"""

import hashlib
import json
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from functools import cached_property, lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version
from pydantic import ValidationError

from fallback_plugins.pypi.locks.uv_lock import package_tables, read_tree
from fallback_plugins.pypi.manifests.groups import table_of, texts
from fallback_plugins.pypi.manifests.kinds import Kind, kind_in_set, kind_of
from fallback_plugins.pypi.manifests.metadata import asked_python
from fallback_plugins.pypi.manifests.poetry_constraints import alternatives
from fallback_plugins.pypi.manifests.pyproject import parse_toml, requirement_arrays
from fallback_plugins.pypi.manifests.requirements import logical_lines
from fallback_plugins.pypi.manifests.requirements_files import (
    clean,
    includes,
    is_closed,
    unresolvable,
)
from fallback_plugins.pypi.resolving.resolver import UvRefusedError
from fallback_plugins.pypi.resolving.scratch_lock import PackageIndex, lowest_python
from fallback_plugins.pypi.resolving.sdist import sdist_requirements
from fallback_plugins.pypi.resolving.uv_client import THIS_PYTHON, UvClient, Wanted
from fallback_plugins.pypi.resolving.wanted import (
    Reading,
    check_dynamic,
    constraint_files,
    has_own_index,
    name_of,
    project_lines,
    wanted,
)
from fallback_plugins.pypi.surveying.compiled import decided_by
from fallback_plugins.pypi.surveying.survey import ECOSYSTEM
from fallback_plugins.pypi.uv_words import one_line
from fallback_plugins.shared.identity import is_aside
from fallback_plugins.shared.resolution import (
    Declaration,
    InstallCommand,
    Resolution,
    ResolvedBy,
    ResolvedPackage,
    Unresolved,
)
from fallback_plugins.shared.tree import DependencyEdge, DependencyTree, Node
from fallback_tier.errors import RecipeError, RepositoryError, StateFolderError, ToolError
from fallback_tier.execution import ClientRunner, KnowsHosts
from fallback_tier.files import whole
from fallback_tier.files.folders import users_folder
from fallback_tier.limits import MAX_KEPT_RESOLUTIONS
from fallback_tier.repo import RepoContext

#: Packages of one command without a wheel: each costs a listing, an archive and a run of uv.
MAX_WITHOUT_WHEEL = 10

#: Sets of clients and Pythons of which it is kept what archives said.
_LEARNT = 8

#: The name of a stub wheel, its metadata, and what of it is unknown.
_Stub = tuple[str, str, tuple[Unresolved, ...]]

#: An option for a whole requirements file, and the options of uv for it or a setting in ``[tool.uv]``.
_PRE = re.compile(r"^[ \t]*--pre\b", re.MULTILINE)
_CHOOSING = ("--prerelease=allow", "--resolution=lowest", "--resolution=lowest-direct")

#: Files of a project's own metadata.
_METADATA = ("pyproject.toml", "setup.cfg", "setup.py")

_HASH = "--hash"

#: A compiler's comment on who requires a line.
_VIA = re.compile(r"#[ \t]*via\b")

_WORD = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")

_NAME = r"(?P<name>[A-Za-z0-9](?:[\w.-]{0,198}[A-Za-z0-9])?)"
_WHEELS_REQUIRED = re.compile(rf"Wheels are required for `{_NAME}`")
#: What uv says of a release, or a package, that the registry does not have.
_ABSENT = re.compile(
    rf"(?:no versions? of {_NAME}(?:\[[^\]]*\])?==|"
    rf"(?<!\S){_NAME.replace('name', 'other')} was not found in)"
)


def resolve(client: UvClient, source: str, lines: Wanted, *options: str) -> DependencyTree:
    """The tree that a set of requirements becomes. Raises RecipeError, ToolError."""
    text, _ = _locked(client, lines, options)
    return _named_tree(source, text)


@dataclass
class CommandResolution:
    """What the manifests of one command resolve to; ``path`` names it.

    ``made`` runs the client, ``known`` does not.
    """

    repo: RepoContext
    clients: ClientRunner
    path: str
    texts: Mapping[str, str]
    #: The day of the resolution, once it was taken from what an earlier run kept.
    kept_since: date | None = None
    #: Why uv can't resolve the pins together, once they were taken as they are.
    pins_reason: str = ""
    _skipped: list[Unresolved] = field(default_factory=list)

    @cached_property
    def wanted(self) -> Wanted:
        """What uv is given; the rest is in ``_skipped``. Raises RecipeError: not TOML."""
        reading = Reading(self._folder_lines, self._skipped, closed=self.is_compiled)
        if kind_of(self.path) is Kind.PYPROJECT:
            reading.each(self.path, self.texts[self.path], self._check_dynamic)
        return wanted(self._installed, reading)

    @cached_property
    def _installed(self) -> Mapping[str, str]:
        """The files without those that another file of the set was compiled from."""
        sources = decided_by(self.texts)
        return {path: text for path, text in self.texts.items() if path not in sources}

    @property
    def _own_index(self) -> str | None:
        """The first file that names another index, or a folder of archives; uv.toml may."""
        named = (path for path, text in self.texts.items() if has_own_index(path, text))
        settings = posixpath.join(posixpath.dirname(self.path), "uv.toml")
        beside = kind_of(self.path) is Kind.PYPROJECT and self.repo.has(settings)
        return next(named, settings if beside else None)

    @property
    def strict(self) -> Reading:
        """Reads manifests as the resolution did, and refuses what it had to leave out."""
        return Reading(self._folder_lines)

    @cached_property
    def options(self) -> tuple[str, ...]:
        """How the project's own client chooses among releases, as options of uv: ``--pre``, and what
        ``[tool.uv]`` says."""
        if kind_of(self.path) is Kind.PYPROJECT:
            uv = table_of(parse_toml(self.path, self.texts[self.path]), "tool", "uv")
            return tuple(it for it in _CHOOSING if it in {f"--{key}={uv[key]}" for key in uv})
        takes_pre = any(
            kind_in_set(path) is Kind.REQUIREMENTS and _PRE.search(text)
            for path, text in self.texts.items()
        )
        return ("--prerelease=allow",) if takes_pre else ()

    @cached_property
    def python(self) -> str:
        """The lowest Python that the project supports; the one that installs, if it does not say."""
        folder = posixpath.dirname(self.path)
        paths = {name: posixpath.join(folder, name) for name in _METADATA}
        read = {}
        for name, path in paths.items():
            with suppress(RepositoryError):
                read[name] = self.texts.get(path) or self.repo.read_text(path)
        try:
            spec = asked_python(read)
            SpecifierSet(spec)
        except InvalidSpecifier:
            spec = ",".join(map(str, (alternatives(spec) or ("",))[0]))
        except RecipeError:
            spec = ""
        return lowest_python(spec) if spec else THIS_PYTHON

    @cached_property
    def known(self) -> Resolution | None:
        """The resolution, if no client has to run: the set is compiled or requires nothing, or (offline)
        it was kept. Raises RecipeError."""
        lines = self.wanted
        if not lines.requirements:
            return self._resolution(ResolvedBy.CLIENT, DependencyTree(self.path, {}), {})
        if self._is_lock and (pins := _pins(lines)) is not None:
            return self._resolution(ResolvedBy.LOCK, self._flat(pins), {})
        return self._kept() if self.repo.settings.offline else None

    @cached_property
    def made(self) -> Resolution:
        """The resolution. Raises RecipeError for text that can't be parsed."""
        known = self.known
        if known is not None:
            return known
        if self.repo.settings.offline:
            return self._unknown(
                "No registry is asked (--offline), and no resolution was kept.",
                "Commit a lock, or run it without --offline.",
            )
        if self._own_index:
            # Never resolved elsewhere: another registry's package of the same name is not the same.
            return self._unknown(f"{self._own_index} names its own index, which is not asked.")
        try:
            made = self._by_client()
        except UvRefusedError as error:
            found = _pins(self.wanted) if error.found_no_solution else None
            if found is None:
                return self._unknown(error.problem, error.next_step)
            return self._by_pins(found, error)
        except (RecipeError, ToolError) as error:
            return self._unknown(error.problem, error.next_step)
        self._keep(made)
        return made

    @property
    def notes(self) -> Iterator[str]:
        """Yield sentences on how the resolution was made, if it was and is not this day's of uv."""
        if self.kept_since:
            yield f"{self.path} was resolved on {self.kept_since}, and not again (--offline)."
        if self.pins_reason:
            yield (
                f"{self.path}: its pins are counted as installed, as uv can't resolve them together."
                f" {self.pins_reason}"
            )

    # --- by uv ----------------------------------------------------------------------------------

    def _by_client(self) -> Resolution:
        """Everything together; if that conflicts, each root file and each group with what it includes."""
        try:
            return self._locked([self.wanted])
        except UvRefusedError as error:
            parts = self._parts() if error.found_no_solution else []
            if len(parts) < 2:
                raise
            return self._locked(parts)

    def _locked(self, parts: Sequence[Wanted]) -> Resolution:
        """Of several parts, those that can't be resolved are unknown. Raises UvRefusedError if all are."""
        trees: list[DependencyTree] = []
        tables: dict[str, Mapping[str, Any]] = {}
        unknown: list[Unresolved] = []
        for part in parts:
            try:
                text, without = self._lowest_python_lock(part)
            except UvRefusedError as error:
                if not trees and part is parts[-1]:
                    raise
                unknown.append(self._not_resolved(error.problem, error.next_step))
                continue
            trees.append(_named_tree(self.path, text))
            tables |= {_key(table): table for table in package_tables("uv.lock", text)}
            unknown += without
        return self._resolution(ResolvedBy.CLIENT, _joined(self.path, trees), tables, unknown)

    def _lowest_python_lock(self, part: Wanted) -> tuple[str, list[Unresolved]]:
        """For the lowest Python that is supported; if there is none, for the one that installs."""
        try:
            return _locked(UvClient(self.clients, self.python), part, self.options)
        except UvRefusedError as error:
            if self.python == THIS_PYTHON or not error.found_no_solution:
                raise
            with suppress(UvRefusedError):
                return _locked(UvClient(self.clients), part, self.options)
            raise

    def _parts(self) -> list[Wanted]:
        """What separate commands install: root files with what they include; groups and extras."""
        reading = Reading(self._folder_lines, [])
        if kind_of(self.path) is Kind.PYPROJECT:
            return self._groups(reading)
        return [wanted({it: self.texts[it] for it in root}, reading) for root in self.roots]

    @property
    def roots(self) -> Iterator[frozenset[str]]:
        """Each file that no other includes, with all that it includes. Constraints install nothing."""
        included = {
            path: {other for other, _ in includes(path, text)}
            for path, text in self._installed.items()
            if kind_in_set(path) is Kind.REQUIREMENTS
        }
        if not included:
            yield frozenset(self.texts)
        for path in included.keys() - constraint_files(self.texts):
            if not any(path in others for one, others in included.items() if one != path):
                yield frozenset(_reached(path, included))

    def _groups(self, reading: Reading) -> list[Wanted]:
        document = parse_toml(self.path, self.texts[self.path])
        groups: dict[tuple[str | int, ...], list[str]] = {}
        for keys, value in requirement_arrays(document):
            if keys[0] != "tool":
                groups.setdefault(keys[:-1], []).extend(reading.clean(self.path, [value]))
        main = groups.pop(("project", "dependencies"), [])
        whole = self.wanted
        return [
            Wanted((*main, *lines), whole.constraints, whole.overrides) for lines in groups.values()
        ]

    # --- by pins --------------------------------------------------------------------------------

    def _by_pins(self, pins: Mapping[str, str], error: UvRefusedError) -> Resolution:
        """The pins, with what they bring in as far as a registry has it."""
        lines = list(self.wanted.requirements)
        tree = self._flat(pins)
        for _ in range(MAX_WITHOUT_WHEEL):
            over = tuple(f"{name}=={pins[name]}" for name in {name_of(line) for line in lines})
            try:
                text, _ = _locked(UvClient(self.clients), Wanted(tuple(lines), (), over))
            except UvRefusedError as again:
                found = _ABSENT.search(one_line(again.output))
                absent = canonicalize_name(found["name"] or found["other"]) if found else ""
                fewer = [line for line in lines if name_of(line) != absent]
                if len(fewer) == len(lines):
                    break
                lines = fewer
            except (RecipeError, ToolError):
                break
            else:
                tree = _joined(self.path, [tree, _named_tree(self.path, text)])
                break
        self.pins_reason = error.problem
        made = self._resolution(ResolvedBy.PINS, tree, {})
        return made.model_copy(update={"reason": error.problem})

    def _flat(self, pins: Mapping[str, str]) -> DependencyTree:
        nodes = {f"{name} {it}": Node(f"{name} {it}", name, it) for name, it in pins.items()}
        asks = tuple(DependencyEdge(it.name, f"=={it.version}", it.key) for it in nodes.values())
        return DependencyTree(self.path, nodes, (Node(self.path, self.path, "", asks),))

    @property
    def is_compiled(self) -> bool:
        """Whether a compiled, or hash-pinned, file says all that is installed, and why."""
        found = [
            text
            for path, text in self._installed.items()
            if kind_in_set(path) is Kind.REQUIREMENTS and is_closed(text)
        ]
        return bool(found) and all(map(_is_annotated, found))

    @property
    def _is_lock(self) -> bool:
        """Whether each line of the compiled files shows that it was not added by hand, by a hash or by a
        comment on what requires it."""
        found = [text for text in self._installed.values() if is_closed(text)]
        return self.is_compiled and all(_HASH in text or _VIA.search(text) for text in found)

    # --- the value ------------------------------------------------------------------------------

    def _resolution(
        self,
        by: ResolvedBy,
        tree: DependencyTree,
        tables: Mapping[str, Mapping[str, Any]],
        unresolved: Iterable[Unresolved] = (),
    ) -> Resolution:
        bare = Resolution.of_tree(
            ECOSYSTEM,
            self._command,
            by,
            tree,
            client=_uv() if by is not ResolvedBy.LOCK else "",
            made_on=datetime.now(UTC).date() if by is not ResolvedBy.LOCK else None,
            declarations=tuple(self._declarations()),
            unresolved=(*map(self._narrowed, self._skipped), *unresolved),
        )
        packages = tuple(_with_origin(one, tables.get(one.key, {})) for one in bare.packages)
        return bare.model_copy(update={"packages": packages})

    def _narrowed(self, skipped: Unresolved) -> Unresolved:
        """Among tests and examples, what can't be read concerns what its files name, and nothing else."""
        if not is_aside(self.path) or skipped.names:
            return skipped
        words = {
            canonicalize_name(it) for text in self.texts.values() for it in _WORD.findall(text)
        }
        return skipped.model_copy(update={"names": frozenset(words)})

    def _unknown(
        self, reason: str, next_step: str = "Commit a lock, or requirements that were compiled."
    ) -> Resolution:
        """Nothing is known of what the command brings in."""
        part = self._not_resolved(reason, next_step)
        return self._resolution(ResolvedBy.CLIENT, DependencyTree(self.path, {}), {}, [part])

    def _not_resolved(self, reason: str, next_step: str) -> Unresolved:
        reason = f"{self.path} was not resolved. {reason}"
        return Unresolved(subject=self.path, reason=reason, next_step=next_step)

    @property
    def _command(self) -> InstallCommand:
        files = (self.path, *sorted(path for path in self.texts if path != self.path))
        kind = kind_in_set(self.path)
        option = (
            f"-r {self.path}" if kind is Kind.REQUIREMENTS else f"./{posixpath.dirname(self.path)}"
        )
        label = "pipenv install" if kind is Kind.PIPFILE else f"pip install {option}"
        return InstallCommand(client="uv", files=files, label=label)

    def _declarations(self) -> Iterator[Declaration]:
        """Each requirement with the first line of a file that has its text."""
        for line in (*self.wanted.requirements, *self.wanted.constraints):
            asked = Requirement(line)
            name = canonicalize_name(asked.name)
            pattern = re.compile(rf"(?<![\w.-]){re.escape(asked.name)}(?![\w-])", re.IGNORECASE)
            for path, text in self.texts.items():
                if (found := pattern.search(text)) is not None:
                    number = text.count("\n", 0, found.start()) + 1
                    marker = str(asked.marker) if asked.marker else ""
                    yield Declaration(
                        name=name, text=line, file=path, line=number, environments=marker
                    )
                    break

    # --- what the repository says of itself -----------------------------------------------------

    def _folder_lines(self, folder: str, extras: Sequence[str]) -> Sequence[str]:
        """What a folder of the repository requires (``-e ./lib[test]``). Raises RecipeError."""
        found = {}
        for name in _METADATA:
            path = posixpath.normpath(posixpath.join(folder, name))
            if self.repo.has(path) and kind_of(path) is not None:
                try:
                    found[name] = self.repo.read_text(path)
                except RepositoryError as error:
                    raise unresolvable(self.path, folder) from error
        if not found:
            raise unresolvable(self.path, folder)
        own = canonicalize_name(folder)
        lines = [clean(self.path, line) for line in project_lines(found, extras)]
        return [line for line in lines if name_of(line) != own]

    def _check_dynamic(self, path: str, text: str) -> Sequence[str]:
        """Raises RecipeError if the build computes the dependencies, and no file that is read says them."""
        folder = posixpath.dirname(path)
        beside = [name for name in _METADATA if self.repo.has(posixpath.join(folder, name))]
        check_dynamic(path, parse_toml(path, text), beside)
        return ()

    # --- kept for runs without a registry -------------------------------------------------------

    def _place(self) -> Path | None:
        """Where the resolution of these inputs is kept."""
        lines = self.wanted
        hosts = self.clients.allowed_hosts(("uv",)) if isinstance(self.clients, KnowsHosts) else ()
        asked = [lines.requirements, lines.constraints, lines.overrides]
        inputs = [asked, self.options, self.python, _uv(), hosts, sorted(self.texts.items())]
        digest = hashlib.sha256(json.dumps(inputs).encode()).hexdigest()
        try:
            return users_folder("cache") / "resolutions" / f"{digest}.json"
        except StateFolderError:
            return None

    def _kept(self) -> Resolution | None:
        place = self._place()
        try:
            text = (whole.kept(place) if place else None) or b""
            kept = Resolution.model_validate_json(text)
        except (OSError, ValidationError):
            return None
        self.kept_since = kept.made_on
        return kept

    def _keep(self, made: Resolution) -> None:
        place = self._place()
        with suppress(OSError):
            if place is not None:
                place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                whole.keep(place, made.model_dump_json().encode(), MAX_KEPT_RESOLUTIONS)


def _locked(
    client: UvClient, lines: Wanted, options: Sequence[str] = ()
) -> tuple[str, list[Unresolved]]:
    """uv's lock, with archives read for what has no wheel, and of which they don't say what it requires.

    Raises RecipeError, ToolError.
    """
    learnt = _learnt(client.clients, client.python)
    found = {name: stub for (name, spec), stub in learnt.items() if spec == _spec(lines, name)}
    read = 0
    while True:
        stubs = {stem: text for stem, text, _ in found.values()}
        try:
            text = client.lock(lines, *options, stubs=stubs)
        except UvRefusedError as error:
            names = {
                canonicalize_name(it["name"]) for it in _WHEELS_REQUIRED.finditer(error.output)
            }
            new = sorted(names - found.keys())
            if not new or read + len(new) > MAX_WITHOUT_WHEEL:
                raise
        else:
            lowest = any("lowest" in option for option in options)
            new = [] if lowest else sorted(_passed_over(client, lines, text) - found.keys())
            problems = [it for _, _, problem in found.values() for it in problem]
            if not new or read + len(new) > MAX_WITHOUT_WHEEL:
                return text, [*problems, *(_not_looked_into(name) for name in new)]
        read += len(new)
        for name in new:
            spec = _spec(lines, name)
            found[name] = learnt[name, spec] = _stub(client, name, spec)


def _passed_over(client: UvClient, lines: Wanted, text: str) -> set[NormalizedName]:
    """Packages of a lock that have a newer release without a wheel: uv took an older one, since it builds
    nothing here, and an installer takes the newer one."""
    held: dict[str, Version] = {}
    for table in package_tables("uv.lock", text):
        if "registry" in table_of(table, "source"):
            name, one = str(table["name"]), Version(str(table["version"]))
            held[name] = max(one, held.get(name, one))
    asked = Counter(map(name_of, (*lines.requirements, *lines.constraints)))
    specs = {name: _spec(lines, name) if asked[name] == 1 else "" for name in held}
    free = {name: spec for name, spec in specs.items() if not spec.startswith("==")}
    if not free:
        return set()
    alone = Wanted(tuple(name + spec for name, spec in free.items()))
    try:
        newest = client.lock(alone, alone=tuple(free))
    except UvRefusedError:
        return set()  # a package that not every Python has
    return {
        canonicalize_name(table["name"])
        for table in package_tables("uv.lock", newest)
        if table["name"] in held and not table.get("wheels")
        if Version(str(table["version"])) > held[table["name"]]
    }


def _not_looked_into(name: str) -> Unresolved:
    return Unresolved(
        subject=name,
        reason=f"{name} has a newer release without a wheel, which was not looked into.",
        next_step="Commit a lock or compiled requirements, so that what it brings in is known.",
    )


@lru_cache(maxsize=_LEARNT)
def _learnt(_clients: ClientRunner, _python: str) -> dict[tuple[str, str], _Stub]:
    """What archives said, by name and specifier: a set is resolved again with each change of it."""
    return {}


def _spec(lines: Wanted, name: str) -> str:
    """What a set requires of a package itself."""
    asked = (Requirement(line) for line in (*lines.requirements, *lines.constraints))
    specs = (str(it.specifier) for it in asked if canonicalize_name(it.name) == name)
    return ",".join(dict.fromkeys(filter(None, specs)))


def _stub(client: UvClient, name: str, spec: str) -> _Stub:
    """The stub of the highest release that a specifier admits, read from its source archive."""
    release = PackageIndex(client.clients).highest(name, spec, client.python)
    archives = [file for file in release.files if not file.name.endswith(".whl")]
    requirements = sdist_requirements(archives[0]) if archives else None
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {release.version}"]
    lines += [f"Requires-Dist: {it}" for it in requirements or ()]
    said = f"{name} {release.version} has no wheel, and its archive does not say what it requires."
    problem = Unresolved(
        subject=f"{name} {release.version}",
        reason=said,
        next_step="Commit a lock or compiled requirements, so that what it brings in is known.",
    )
    stem = f"{name.replace('-', '_')}-{release.version}"
    return stem, "\n".join([*lines, ""]), () if requirements is not None else (problem,)


def _is_annotated(text: str) -> bool:
    """Return whether each requirement has a hash, or all or none have the comment that compilers write."""
    lines = [
        line for line in logical_lines(text) if line.strip() and not line.strip().startswith("-")
    ]
    hashed = sum(_HASH in line for line in lines)
    via = len(_VIA.findall(text))
    return hashed == len(lines) if hashed else via == 0 or via >= len(lines)


def _pins(lines: Wanted) -> dict[str, str] | None:
    """The version of each requirement, if each is one exact version; otherwise None."""
    found: dict[str, str] = {}
    for line in lines.requirements:
        asked = Requirement(line)
        clauses = [*asked.specifier]
        exact = [it for it in clauses if it.operator in {"==", "==="} and "*" not in it.version]
        if len(exact) != 1:
            return None
        found[canonicalize_name(asked.name)] = exact[0].version
    return found


def _reached(root: str, included: Mapping[str, set[str]]) -> set[str]:
    waiting, seen = [root], set[str]()
    while waiting:
        here = waiting.pop()
        if here in included and here not in seen:
            seen.add(here)
            waiting += included[here]
    return seen


def _named_tree(source: str, text: str) -> DependencyTree:
    tree = read_tree("uv.lock", text)
    roots = tuple(replace(root, key=source, name=source, version="") for root in tree.roots)
    return DependencyTree(source, tree.nodes, roots)


def _joined(source: str, trees: Sequence[DependencyTree]) -> DependencyTree:
    """One tree with the packages of all, and one root that asks for what their roots do."""
    nodes: dict[str, Node] = {}
    for tree in trees:
        for key, node in tree.nodes.items():
            before = nodes.get(key)
            asks = dict.fromkeys((*(before.asks if before else ()), *node.asks))
            nodes[key] = replace(node, asks=tuple(asks))
    asks = dict.fromkeys(ask for tree in trees for root in tree.roots for ask in root.asks)
    return DependencyTree(source, nodes, (Node(source, source, "", tuple(asks)),))


def _with_origin(one: ResolvedPackage, table: Mapping[str, Any]) -> ResolvedPackage:
    """The package with its registry, its digest and its environments, as uv's lock has them."""
    if not table:
        return one
    files = (*filter(None, [table.get("sdist")]), *table.get("wheels", ()))
    source = table_of(table, "source")
    return one.model_copy(
        update={
            "origin": str(source.get("registry", source.get("url", ""))),
            "digest": str(next((file.get("hash", "") for file in files), "")),
            "environments": " or ".join(texts(table.get("resolution-markers"))),
        }
    )


def _key(table: Mapping[str, Any]) -> str:
    return f"{table['name']} {table.get('version', '')}".strip()


def _uv() -> str:
    try:
        return f"uv {version('uv')}"
    except PackageNotFoundError:
        return "uv"
