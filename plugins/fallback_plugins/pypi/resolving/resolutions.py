"""The resolution of an install command's manifests: by uv, or by their pins (ADR-0099).

Nothing is built: an sdist's requirements are read from its archive. What can't be read is ``unresolved``.
"""

import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from functools import cached_property, lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version
from pydantic import ValidationError

from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.pypi.locks.uv_lock import STUBS, key_of, package_tables, read_tree
from fallback_plugins.pypi.manifests import pythons
from fallback_plugins.pypi.manifests.commands import install_commands
from fallback_plugins.pypi.manifests.indexes import has_own_index
from fallback_plugins.pypi.manifests.kinds import Kind, kind_in_set, kind_of
from fallback_plugins.pypi.manifests.markers import alternatives
from fallback_plugins.pypi.manifests.metadata import METADATA_FILES, asked_python, own_name
from fallback_plugins.pypi.manifests.pyproject import (
    TableEntry,
    in_other_arrays,
    parse_toml,
    requirement_arrays,
    table_of,
    texts,
)
from fallback_plugins.pypi.manifests.requirements import (
    includes,
    is_closed,
    logical_lines,
    unresolvable,
    with_included,
)
from fallback_plugins.pypi.resolving.registry import (
    PackageIndex,
    Release,
    Sdist,
    as_options,
    lowest_python,
    sdist_requirements,
    sdists_of,
)
from fallback_plugins.pypi.resolving.uv_client import THIS_PYTHON, UvClient, UvRefusedError, Wanted
from fallback_plugins.pypi.resolving.wanted import (
    Reading,
    check_dynamic,
    constraint_files,
    hatch_hook,
    joined,
    name_of,
    project_lines,
    wanted,
)
from fallback_plugins.pypi.surveying.deciding import decided_by
from fallback_plugins.pypi.surveying.survey import ECOSYSTEM, is_installed
from fallback_plugins.pypi.uv_words import one_line
from fallback_plugins.shared.ages import Ages
from fallback_plugins.shared.identity import is_aside
from fallback_plugins.shared.ladder import NO_TEXTS
from fallback_plugins.shared.resolution import (
    Declaration,
    InstallCommand,
    KeptResolution,
    Resolution,
    ResolvedBy,
    ResolvedPackage,
    SharedResolutions,
    Unresolved,
)
from fallback_plugins.shared.tree import DependencyEdge, DependencyTree, Node, grouped
from fallback_tier.errors import RecipeError, RepositoryError, ToolError
from fallback_tier.execution import ClientRunner, KnowsHosts
from fallback_tier.outcome import Blocker
from fallback_tier.repo import RepoContext

#: The most packages without a wheel that are read for one lock: each costs a listing, an archive and a run
#: of uv.
MAX_WITHOUT_WHEEL = 10

#: The most pinned packages that no registry has, for what the other pins bring in: each costs a run of uv.
MAX_ABSENT = 10

#: pip's option in a requirements file, and the options of uv that correspond to it or to ``[tool.uv]``.
_PRE = re.compile(r"^[ \t]*--pre\b", re.MULTILINE)
_CHOOSING = ("--prerelease=allow", "--resolution=lowest", "--resolution=lowest-direct")

_HASH = "--hash"

#: A compiler's comment on which package requires a line.
_VIA = re.compile(r"#[ \t]*via\b")

_WORD = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")

_NAME = r"(?P<name>[A-Za-z0-9](?:[\w.-]{0,198}[A-Za-z0-9])?)"
_WHEELS_REQUIRED = re.compile(
    rf"Wheels are required for `{_NAME}`|"
    rf"(?<!\S){_NAME.replace('name', 'other')}[<>=!~]\S* has no wheels with a matching"
)
#: uv's message on a release, or a package, that the registry does not have.
_ABSENT = re.compile(
    rf"(?:no versions? of {_NAME}(?:\[[^\]]*\])?==|"
    rf"(?<!\S){_NAME.replace('name', 'other')} was not found in)"
)


def _absent(error: UvRefusedError) -> str:
    """Return the package that the registry lacks, or lacks the required version of; empty if uv names
    none."""
    match = _ABSENT.search(one_line(error.output))
    return canonicalize_name(match["name"] or match["other"]) if match else ""


class UnknownPartError(RecipeError):
    """The requirements of a package in a tree are unknown."""


def resolve(
    client: UvClient,
    source: str,
    lines: Wanted,
    *options: str,
    is_trial: bool = False,
    known: Callable[[], Collection[Unresolved]] = tuple,
) -> Resolution:
    """Return the resolution of these requirements, without declarations.

    ``known``: returns the parts that may be unknown. ``is_trial``: releases without a wheel are taken only
    if nothing else serves, and unknown parts are accepted. Raises RecipeError; UnknownPartError if another
    part of it is unknown; ToolError.
    """
    text, unknown = _locked(client, lines, options, is_trial=is_trial)
    open_parts = [part for part in unknown if not part.names and not is_trial]
    more = [part for part in open_parts if part not in known()]
    if more:
        reason, step = more[0].reason, more[0].next_step
        raise UnknownPartError(RefusalReason.RESOLVER_FAILED, reason, next_step=step)
    command = InstallCommand(client="uv", files=(source,), label=f"uv for {source}")
    bare = Resolution.of_tree(
        ECOSYSTEM,
        command,
        ResolvedBy.CLIENT,
        _named_tree(source, text),
        unresolved=tuple(unknown),
    )
    return _with_origins(bare, _by_key(text))


@dataclass
class CommandResolution:
    """The resolution of one install command's manifests; ``path`` is its main file.

    ``made`` may run the client, ``known`` does not.
    """

    repo: RepoContext
    clients: ClientRunner
    path: str
    texts: Mapping[str, str]
    #: Resolve only what no fix changes: a pyproject.toml's environments of other tools and its builds, or
    #: the install commands in a program.
    only_tools: bool = False
    #: No client may run: only a resolution that an earlier run kept is used.
    only_kept: bool = False
    #: The age rules: a client that knows those of the project's files installs by them.
    ages: Ages = field(default_factory=lambda: Ages(ECOSYSTEM))
    #: Whether the resolution was made under these rules.
    is_by_ages: bool = False
    #: The day of the resolution, if it is one that an earlier run kept.
    kept_since: date | None = None
    #: Why uv can't resolve the pins together, if they are counted as installed.
    pins_reason: str = ""
    _skipped: list[Unresolved] = field(default_factory=list)
    _read_folders: dict[str, tuple[Mapping[str, str], Sequence[str]]] = field(default_factory=dict)

    @cached_property
    def wanted(self) -> Wanted:
        """Return what uv is to resolve, and put the rest in ``_skipped``. Raises RecipeError for invalid
        TOML."""
        reading = Reading(self._folders(), self._skipped, closed=self.is_compiled)
        if self._is_of_tools:
            return joined(self._tools(reading))
        if self._is_of_program:
            return joined(self._commands(reading))
        if kind_of(self.path) is Kind.PYPROJECT:

            def check(path: str, text: str) -> Sequence[str]:
                check_dynamic(
                    path, parse_toml(path, text), self._metadata_of(posixpath.dirname(path))
                )
                return ()

            reading.each(self.path, self.texts[self.path], check)
        return wanted(self._installed, reading)

    @cached_property
    def _installed(self) -> Mapping[str, str]:
        """Return the files, without those that another file was compiled from."""
        sources = decided_by(self.texts)
        return {path: text for path, text in self.texts.items() if path not in sources}

    @property
    def _own_index(self) -> str | None:
        """Return the first file that names another index or a folder of archives, or None. A uv.toml next
        to a pyproject.toml counts as one, as it may name an index."""
        paths = (path for path, text in self.texts.items() if has_own_index(path, text))
        settings = posixpath.join(posixpath.dirname(self.path), "uv.toml")
        has_settings = kind_of(self.path) is Kind.PYPROJECT and self.repo.has(settings)
        return next(paths, settings if has_settings else None)

    def strict(self, patched: Mapping[str, str] = NO_TEXTS) -> Reading:
        """Return a reading of manifests like the resolution's that refuses what the resolution skipped.

        ``patched``: a fix's texts by path, which are read for the folders that the command installs.
        """
        return Reading(self._folders(patched), folders=self._read_folders)

    @cached_property
    def options(self) -> tuple[str, ...]:
        """Return uv's options for how the project's own client chooses among releases: from ``--pre``, or
        from ``[tool.uv]``."""
        if kind_of(self.path) is Kind.PYPROJECT:
            uv = table_of(parse_toml(self.path, self.texts[self.path]), "tool", "uv")
            return tuple(
                option for option in _CHOOSING if option in {f"--{key}={uv[key]}" for key in uv}
            )
        takes_pre = any(
            kind_in_set(path) is Kind.REQUIREMENTS and _PRE.search(text)
            for path, text in self.texts.items()
        )
        return ("--prerelease=allow",) if takes_pre else ()

    @cached_property
    def python(self) -> str:
        """Return the lowest Python that the project supports; if it names none, the one that it runs on, or
        the one that installs."""
        folder = posixpath.dirname(self.path)
        paths = {name: posixpath.join(folder, name) for name in METADATA_FILES}
        metadata = {}
        for name, path in paths.items():
            with suppress(RepositoryError):
                metadata[name] = self.texts.get(path) or self.repo.read_text(path)
        try:
            spec = asked_python(metadata)
            SpecifierSet(spec)
        except InvalidSpecifier:
            spec = ",".join(map(str, (alternatives(spec) or ("",))[0]))
        except RecipeError:
            spec = ""
        return lowest_python(spec) if spec else pythons.named(self.repo, folder) or THIS_PYTHON

    @property
    def client(self) -> UvClient:
        """Return uv for the lowest supported Python."""
        return UvClient(self.clients, self.python)

    @cached_property
    def known(self) -> Resolution | None:
        """Return the resolution if no client has to run, otherwise None. No client has to run for compiled
        files, for files that require nothing, and for a kept resolution (only if no client may run, or
        offline). Raises RecipeError."""
        lines = self.wanted
        if not lines.requirements:
            return self._resolution(ResolvedBy.CLIENT, DependencyTree(self.path, {}), {})
        # Only a compiler writes hashes, or comments on what requires a line: nobody wrote these files by
        # hand.
        by_compiler = self.is_compiled and all(
            _HASH in text or _VIA.search(text)
            for text in self._installed.values()
            if is_closed(text)
        )
        if by_compiler and (pins := _pins(lines)) is not None:
            return self._resolution(ResolvedBy.LOCK, self._flat(pins), {})
        return self._kept() if self.only_kept or self.repo.settings.offline else None

    @cached_property
    def made(self) -> Resolution:
        """Return the resolution. Raises RecipeError for text that can't be parsed."""
        known = self.known
        if known is not None:
            return known
        if self.repo.settings.offline:
            return self._unknown(
                "No registry is asked (--offline), and no resolution was kept.",
                "Commit a lock, or run it without --offline.",
            )
        if self.only_kept:
            return self._unknown(
                "No client runs (--no-resolve), and no resolution was kept.",
                "Commit a lock, or run it without --no-resolve.",
            )
        if self._own_index:
            # Not resolved with another registry: its package of the same name may be a different one.
            reason = f"{self._own_index} names its own index, which is not asked."
            return self._unknown(reason, by_files=True)
        try:
            resolution = self._by_client()
        except UvRefusedError as error:
            pins = _pins(self.wanted) if error.found_no_solution else None
            if pins is None:
                by_files = error.found_no_solution
                return self._unknown(
                    error.problem, error.next_step, error.blockers, by_files=by_files
                )
            return self._by_pins(pins, error)
        except RecipeError as error:
            return self._unknown(error.problem, error.next_step, error.blockers)
        except ToolError as error:
            return self._unknown(error.problem, error.next_step)
        self._cached.keep(resolution.model_dump_json())
        if not self.only_tools:
            SharedResolutions.of(self.repo).add(self.texts, resolution)
        return resolution

    @property
    def notes(self) -> Iterator[str]:
        """Yield a sentence if an earlier run made the resolution, and one if uv can't resolve its pins
        together."""
        if self.kept_since:
            yield f"{self.path} was resolved on {self.kept_since}, and not again (no registry is asked)."
        if self.pins_reason:
            yield (
                f"{self.path}: its pins are counted as installed, as uv can't resolve them together."
                f" {self.pins_reason}"
            )

    # --- by uv ----------------------------------------------------------------------------------

    def _by_client(self) -> Resolution:
        """Resolve everything together; if that conflicts, each part of ``_parts`` by itself."""
        try:
            return self._locked([self.wanted])
        except UvRefusedError as error:
            parts = self._parts() if error.found_no_solution else []
            if len(parts) < 2:
                raise
        return self._locked(parts)

    def _locked(self, parts: Sequence[Wanted]) -> Resolution:
        """Resolve the parts; one that can't be resolved is unknown. Raises UvRefusedError if none can
        be."""
        trees: list[DependencyTree] = []
        tables: dict[str, Mapping[str, Any]] = {}
        unknown: list[Unresolved] = []
        for part in parts:
            try:
                text, unknown_in_part = self._without_absent(part)
            except UvRefusedError as error:
                if not trees and part is parts[-1]:
                    raise
                unresolved = self._not_resolved(error.problem, error.next_step, error.blockers)
                unknown.append(
                    self._narrowed(unresolved) if error.found_no_solution else unresolved
                )
                continue
            trees.append(_named_tree(self.path, text))
            tables |= _by_key(text)
            unknown += map(self._narrowed, unknown_in_part)
        return self._resolution(ResolvedBy.CLIENT, _joined(self.path, trees), tables, unknown)

    def _without_absent(self, part: Wanted) -> tuple[str, list[Unresolved]]:
        """Lock a part of install commands without the packages that the registry lacks: only they are
        unknown."""
        missing: list[Unresolved] = []
        while True:
            try:
                text, unknown = self._lowest_python_lock(part)
            except UvRefusedError as error:
                absent = _absent(error)
                remaining = tuple(line for line in part.requirements if name_of(line) != absent)
                if (
                    not self._is_of_commands
                    or not remaining
                    or len(remaining) == len(part.requirements)
                ):
                    raise
                part = replace(part, requirements=remaining)
                problem = self._not_resolved(error.problem, error.next_step, error.blockers)
                missing.append(problem.model_copy(update={"names": frozenset({absent})}))
            else:
                return text, [*missing, *unknown]

    def _lowest_python_lock(self, part: Wanted) -> tuple[str, list[Unresolved]]:
        """Lock a part for the lowest supported Python; if that has no solution, for the one that
        installs."""
        if ages := as_options(self.ages):
            # If a pin itself is too new, only a client without the rules installs it.
            with suppress(UvRefusedError):
                result = _locked(self.client, part, (*self.options, *ages))
                self.is_by_ages = True
                return result
        try:
            return _locked(self.client, part, self.options)
        except UvRefusedError as error:
            if self.python == THIS_PYTHON or not error.found_no_solution:
                raise
            with suppress(UvRefusedError):
                return _locked(UvClient(self.clients), part, self.options)
            raise

    def _parts(self) -> list[Wanted]:
        """Return what separate commands install: root files with what they include; groups and extras."""
        reading = Reading(self._folders(), [])
        if self._is_of_tools:
            return [*self._tools(reading)]
        if kind_of(self.path) is Kind.PYPROJECT:
            return self._groups(reading)
        if self._is_of_commands:
            return [*self._commands(reading)]
        return [wanted({path: self.texts[path] for path in root}, reading) for root in self.roots]

    @property
    def roots(self) -> Iterator[frozenset[str]]:
        """Yield each file that no other includes, with all that it includes. Constraint files are left out,
        as they install nothing."""
        files = {
            path: text
            for path, text in self._installed.items()
            if kind_in_set(path) is Kind.REQUIREMENTS
        }
        if not files:
            yield frozenset(self.texts)
        included = {
            included_path
            for path, text in files.items()
            for included_path, _ in includes(path, text)
            if included_path != path
        }
        for path in files.keys() - constraint_files(self.texts) - included:
            yield frozenset(files.keys() & with_included([path], files.get))

    def _groups(self, reading: Reading) -> list[Wanted]:
        document = parse_toml(self.path, self.texts[self.path])
        groups: dict[tuple[str | int, ...], list[str]] = {}
        for keys, value in requirement_arrays(document):
            if keys[0] != "tool":
                groups.setdefault(keys[:-1], []).extend(reading.clean(self.path, [value]))
        main = groups.pop(("project", "dependencies"), [])
        whole = self.wanted
        apart = self._tools(reading)
        parts: list[list[str]] = [*groups.values()] or [[]]
        return [
            *(Wanted((*main, *lines), whole.constraints, whole.overrides) for lines in parts),
            *apart,
        ]

    @property
    def _entries_of_tools(self) -> Iterator[TableEntry]:
        document = parse_toml(self.path, self.texts[self.path])
        is_locked = self.repo.has(posixpath.join(posixpath.dirname(self.path), "pdm.lock"))
        for entry in in_other_arrays(document):
            binds = "build-constraint-dependencies" in entry.keys  # only what a build takes anyway
            if not binds and not (is_locked and entry.keys[1] == "pdm"):
                yield entry

    def _tools(self, reading: Reading) -> Iterator[Wanted]:
        """Yield what each environment of another tool, and each build, installs separately from the
        project's dependencies."""
        project_name = own_name({"pyproject.toml": self.texts[self.path]})
        entries = ((entry.keys[:-1], entry.value) for entry in self._entries_of_tools)
        for lines in grouped(entries).values():
            requirements = reading.clean(self.path, lines)
            yield Wanted(tuple(line for line in requirements if name_of(line) != project_name))

    def _commands(self, reading: Reading) -> Iterator[Wanted]:
        commands = install_commands(self.path, self.texts[self.path])
        return (reading.command(self.path, command) for command in commands)

    # --- by pins --------------------------------------------------------------------------------

    def _by_pins(self, pins: Mapping[str, str], error: UvRefusedError) -> Resolution:
        """Return a resolution of the pins, with what they bring in as far as a registry has it."""
        lines = list(self.wanted.requirements)
        tree, unknown = self._flat(pins), list[Unresolved]()
        for _ in range(MAX_ABSENT):
            over = tuple(f"{name}=={pins[name]}" for name in {name_of(line) for line in lines})
            try:
                pinned = Wanted(tuple(lines), (), over)
                text, unknown = _locked(UvClient(self.clients), pinned, self.options)
            except UvRefusedError as refusal:
                absent = _absent(refusal)
                remaining = [line for line in lines if name_of(line) != absent]
                if len(remaining) == len(lines):
                    break
                lines = remaining
            except (RecipeError, ToolError):
                break
            else:
                tree = _joined(self.path, [tree, _named_tree(self.path, text)])
                break
        self.pins_reason = error.problem
        resolution = self._resolution(ResolvedBy.PINS, tree, {}, unknown)
        return resolution.model_copy(update={"reason": error.problem})

    def _flat(self, pins: Mapping[str, str]) -> DependencyTree:
        nodes = {
            f"{name} {version}": Node(f"{name} {version}", name, version)
            for name, version in pins.items()
        }
        asks = tuple(
            DependencyEdge(node.name, f"=={node.version}", node.key) for node in nodes.values()
        )
        return DependencyTree(self.path, nodes, (Node(self.path, self.path, "", asks),))

    @property
    def is_compiled(self) -> bool:
        """Return whether the files are compiled or hash-pinned, and so list all that is installed."""
        closed_texts = [
            text
            for path, text in self._installed.items()
            if kind_in_set(path) is Kind.REQUIREMENTS and is_closed(text)
        ]
        return bool(closed_texts) and all(map(_is_annotated, closed_texts))

    # --- the resulting Resolution ---------------------------------------------------------------

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
        return _with_origins(bare, tables)

    def _narrowed(self, skipped: Unresolved) -> Unresolved:
        """Return an unknown part, for files of tests and examples limited to the packages that they may
        name."""
        if not is_aside(self.path) or skipped.names:
            return skipped
        names = {
            canonicalize_name(word) for text in self.texts.values() for word in _WORD.findall(text)
        }
        return skipped.model_copy(update={"names": frozenset(names)})

    def _unknown(
        self,
        reason: str,
        next_step: str = "Commit a lock, or requirements that were compiled.",
        blockers: tuple[Blocker, ...] = (),
        *,
        by_files: bool = False,
    ) -> Resolution:
        """Return a resolution in which all that the command brings in is unknown. ``by_files``: the cause
        is in the files; otherwise a registry or a client did not answer."""
        part = self._not_resolved(reason, next_step, blockers)
        if by_files:
            part = self._narrowed(part)
        return self._resolution(ResolvedBy.CLIENT, DependencyTree(self.path, {}), {}, [part])

    def _not_resolved(
        self, reason: str, next_step: str, blockers: tuple[Blocker, ...]
    ) -> Unresolved:
        reason = f"{self.path} was not resolved. {reason}"
        # An install command in a script, and a build, are taken to bring in only the packages that they
        # name.
        builds = self._is_of_tools and all(
            entry.keys[0] == "build-system" or entry.keys[:3] == ("tool", "hatch", "build")
            for entry in self._entries_of_tools
        )
        is_narrow = self._is_of_commands or builds
        names = map(name_of, self.wanted.requirements) if is_narrow else ()
        placed = (
            blocker.model_copy(update={"file": blocker.file or self.path}) for blocker in blockers
        )
        return Unresolved(
            subject=self.path,
            reason=reason,
            next_step=next_step,
            names=frozenset(names),
            blockers=tuple(placed),
        )

    @property
    def _is_of_tools(self) -> bool:
        return self.only_tools and kind_of(self.path) is Kind.PYPROJECT

    @property
    def _is_of_commands(self) -> bool:
        return self._is_of_program or kind_in_set(self.path) in {Kind.COMMANDS, Kind.CI}

    @property
    def _is_of_program(self) -> bool:
        return self.only_tools and kind_in_set(self.path) is Kind.SCRIPT

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
        """Yield each requirement and constraint, with the first line of a file that has its name."""
        for line in (*self.wanted.requirements, *self.wanted.constraints):
            requirement = Requirement(line)
            name = canonicalize_name(requirement.name)
            pattern = re.compile(
                rf"(?<![\w.-]){re.escape(requirement.name)}(?![\w-])", re.IGNORECASE
            )
            for path, text in self.texts.items():
                if (match := pattern.search(text)) is not None:
                    number = text.count("\n", 0, match.start()) + 1
                    marker = str(requirement.marker) if requirement.marker else ""
                    yield Declaration(
                        name=name, text=line, file=path, line=number, environments=marker
                    )
                    break

    # --- folders of the repository that the command installs ------------------------------------

    def _folders(
        self, patched: Mapping[str, str] = NO_TEXTS, above: tuple[str, ...] = ()
    ) -> Callable[[str, Sequence[str]], Sequence[str]]:
        """Return a reader of what a folder of the repository requires (``-e ./lib[test]``), with the
        folders that it requires in turn. ``above``: the folders that led to it. The reader raises
        RecipeError."""
        return lambda folder, extras: self._folder_lines(patched, above, folder, extras)

    def _folder_lines(
        self, patched: Mapping[str, str], above: tuple[str, ...], folder: str, extras: Sequence[str]
    ) -> Sequence[str]:
        if folder in above:
            return ()
        metadata = self._metadata_of(folder, patched)
        if not metadata:
            raise unresolvable(self.path, folder)
        reading = Reading(self._folders(patched, (*above, folder)))
        lines = reading.clean(
            posixpath.join(folder, next(iter(metadata))), project_lines(metadata, extras)
        )
        lines = [line for line in lines if name_of(line) not in {own_name(metadata), folder}]
        self._read_folders[folder] = metadata, lines
        return lines

    def _metadata_of(self, folder: str, patched: Mapping[str, str] = NO_TEXTS) -> dict[str, str]:
        """Return a folder's metadata files, and its ``hatch_hook``, as texts by name. Raises
        RecipeError."""
        metadata: dict[str, str] = {}

        def read(name: str) -> None:
            path = posixpath.normpath(posixpath.join(folder, name))
            if name and self.repo.has(path) and not is_installed(path):
                try:
                    metadata[name] = patched.get(path) or self.repo.read_text(path)
                except RepositoryError as error:
                    raise unresolvable(self.path, folder) from error

        for name in METADATA_FILES:
            read(name)
        read(hatch_hook(parse_toml("pyproject.toml", metadata.get("pyproject.toml", ""))))
        return metadata

    # --- the kept resolution, for runs without a registry ---------------------------------------

    @cached_property
    def _cached(self) -> KeptResolution:
        lines = self.wanted
        hosts = self.clients.allowed_hosts(("uv",)) if isinstance(self.clients, KnowsHosts) else ()
        wanted_lines = [lines.requirements, lines.constraints, lines.overrides]
        return KeptResolution(
            [
                wanted_lines,
                self.options,
                [rule.text for rule in self.ages.rules if rule.line],
                self.python,
                _uv(),
                hosts,
                sorted(self.texts.items()),
            ]
        )

    def _kept(self) -> Resolution | None:
        try:
            kept = Resolution.model_validate_json(self._cached.text)
        except ValidationError:
            return None
        self.kept_since = kept.made_on
        return kept


def _locked(
    client: UvClient, lines: Wanted, options: Sequence[str] = (), *, is_trial: bool = False
) -> tuple[str, list[Unresolved]]:
    """Return uv's lock, with the releases without a wheel that an installer takes, and its unknown parts.

    uv passes such releases over. So it is shown a stub wheel of each, and takes those that all constraints
    admit; then their archives are read, and it resolves again. ``is_trial``: take them only if nothing else
    serves. Raises RecipeError, ToolError.
    """
    learnt = _learnt(client.clients, client.python)
    stubs = {} if is_trial else dict(learnt.stubs)
    unlisted, archives_left = set[str](), MAX_WITHOUT_WHEEL
    while True:
        shown = {stem: sdist.stub(learnt.said.get(stem) or ()) for stem, sdist in stubs.items()}
        try:
            scratch = client.lock(lines, *options, stubs=shown)
        except UvRefusedError as error:
            matches = _WHEELS_REQUIRED.finditer(one_line(error.output))
            names = {str(canonicalize_name(match["name"] or match["other"])) for match in matches}
            names |= set() if is_trial else error.passed_over
            sdists = {
                sdist.stem: sdist
                for name in names
                for sdist in learnt.required(client, lines, name)
            }
            if sdists.keys() <= stubs.keys():
                raise
            stubs |= sdists
            continue
        tables = package_tables("uv.lock", scratch.text)
        passed_over = frozenset[str]() if is_trial else scratch.passed_over
        sdists = {
            sdist.stem: sdist for sdist in learnt.above(client, lines, tables, passed_over, options)
        }
        for name in (name for name in passed_over if learnt.listed.get(name, ()) is None):
            newest = _highest(client, lines, name)
            locked = {table.get("version") for table in tables if table["name"] == name}
            if newest is None or locked != {newest.version}:
                unlisted.add(name)
        locked = {f"{table['name'].replace('-', '_')}-{table.get('version')}" for table in tables}
        taken = [sdist for stem, sdist in stubs.items() if stem in locked]
        unread = [sdist for sdist in taken if sdist.stem not in learnt.said]
        if not sdists.keys() <= stubs.keys():
            stubs |= sdists
        elif unread and archives_left:
            for sdist in unread[:archives_left]:
                learnt.said[sdist.stem] = sdist_requirements(sdist.file)
            archives_left -= len(unread[:archives_left])
        else:
            learnt.stubs |= {} if is_trial else stubs
            silent = [sdist for sdist in taken if learnt.said.get(sdist.stem, ()) is None]
            return scratch.text, [*_unread(silent, unread, sorted(unlisted))]


@dataclass
class _Learnt:
    """What was read from a registry and its archives, kept for the next resolutions.

    ``listed``: the releases without a wheel by package; None: its page isn't available. ``stubs``: the
    releases that uv was shown, by the beginning of their wheels' names. ``said``: the requirements in their
    archives, by the same; None: they can't be read from it.
    """

    listed: dict[str, tuple[Sdist, ...] | None] = field(default_factory=dict)
    stubs: dict[str, Sdist] = field(default_factory=dict)
    said: dict[str, tuple[str, ...] | None] = field(default_factory=dict)

    def required(self, client: UvClient, lines: Wanted, name: str) -> tuple[Sdist, ...]:
        """Return the releases without a wheel of a package for which uv needs one to find a solution."""
        if name not in self.listed:
            with suppress(RecipeError):  # the package may not support this Python
                alone = client.lock(Wanted((name,)), alone=(name,)).text
                self._list(client, name, _registries(package_tables("uv.lock", alone)))
        return self.listed.get(name) or _by_uv(client, lines, name)

    def above(
        self,
        client: UvClient,
        lines: Wanted,
        tables: Sequence[Mapping[str, Any]],
        names: Iterable[str],
        options: Sequence[str],
    ) -> Iterator[Sdist]:
        """Yield the releases of these packages that an installer may take in place of the locked ones."""
        lowest_locked: dict[str, Version] = {}
        for table in tables:
            if "registry" in table_of(table, "source"):
                name, locked_version = str(table["name"]), Version(str(table["version"]))
                lowest_locked[name] = min(locked_version, lowest_locked.get(name, locked_version))
        is_lowest = any("lowest" in option for option in options)
        for name in sorted(names):
            if name not in self.listed:
                self._list(client, name, _registries(tables))
            sdists = self.listed[name]
            for sdist in _by_uv(client, lines, name) if sdists is None else sdists:
                if (
                    is_lowest
                    or name not in lowest_locked
                    or Version(sdist.version) > lowest_locked[name]
                ):
                    yield sdist

    def _list(self, client: UvClient, name: str, registries: Iterable[str]) -> None:
        self.listed[name] = None
        for registry in registries:
            with suppress(ToolError):
                sdists = sdists_of(registry, name, client.python)
                if sdists is not None:
                    self.listed[name] = sdists
                    return


@lru_cache(maxsize=8)  # one for each pair of clients and a Python
def _learnt(_clients: ClientRunner, _python: str) -> _Learnt:
    return _Learnt()


def _registries(tables: Iterable[Mapping[str, Any]]) -> list[str]:
    registries = {str(table_of(table, "source").get("registry", "")) for table in tables}
    return sorted(registries - {"", STUBS})


def _by_uv(client: UvClient, lines: Wanted, name: str) -> tuple[Sdist, ...]:
    """Return the highest release of ``_highest`` if it has no wheel. This works if only uv can log in to
    the registry."""
    release = _highest(client, lines, name)
    if release is None or any(file.name.endswith(".whl") for file in release.files):
        return ()
    return (Sdist(name, release.version, next(iter(release.files), None)),)


def _highest(client: UvClient, lines: Wanted, name: str) -> Release | None:
    """Return the highest release that the package's own requirements and constraints admit, or None."""
    requirements = (Requirement(line) for line in (*lines.requirements, *lines.constraints))
    specs = (
        str(requirement.specifier)
        for requirement in requirements
        if canonicalize_name(requirement.name) == name
    )
    spec = ",".join(dict.fromkeys(filter(None, specs)))
    with suppress(RecipeError):
        return PackageIndex(client.clients).highest(name, spec, client.python)
    return None


def _unread(
    silent: Iterable[Sdist], unread: Iterable[Sdist], unlisted: Iterable[str]
) -> Iterator[Unresolved]:
    """Yield the unknown parts: archives that don't say what they require (``silent``), archives that were
    not read (``unread``), and packages whose page can't be read (``unlisted``)."""
    why = "has no wheel, and its archive does not say what it requires."
    reasons = [
        (f"{sdist.name} {sdist.version}", f"{sdist.name} {sdist.version} {why}") for sdist in silent
    ]
    why = "has no wheel, and its archive was not looked into."
    reasons += [(sdist.name, f"{sdist.name} {sdist.version} {why}") for sdist in unread]
    why = "may have a release without a wheel: its page in the registry can't be read."
    reasons += [(name, f"{name} {why}") for name in unlisted]
    step = "Commit a lock or compiled requirements, so that what it brings in is known."
    for subject, reason in reasons:
        yield Unresolved(subject=subject, reason=reason, next_step=step)


def _is_annotated(text: str) -> bool:
    """Return whether each requirement has a hash, or all or none have the comment that compilers write."""
    lines = [
        line for line in logical_lines(text) if line.strip() and not line.strip().startswith("-")
    ]
    hashed = sum(_HASH in line for line in lines)
    via = len(_VIA.findall(text))
    return hashed == len(lines) if hashed else via == 0 or via >= len(lines)


def _pins(lines: Wanted) -> dict[str, str] | None:
    """Return the version of each requirement by package, or None if any is not one exact version."""
    versions: dict[str, str] = {}
    for line in lines.requirements:
        requirement = Requirement(line)
        clauses = [*requirement.specifier]
        exact = [
            clause
            for clause in clauses
            if clause.operator in {"==", "==="} and "*" not in clause.version
        ]
        if len(exact) != 1:
            return None
        versions[canonicalize_name(requirement.name)] = exact[0].version
    return versions


def _named_tree(source: str, text: str) -> DependencyTree:
    tree = read_tree("uv.lock", text)
    roots = tuple(root._replace(key=source, name=source, version="") for root in tree.roots)
    return DependencyTree(source, tree.nodes, roots)


def _joined(source: str, trees: Sequence[DependencyTree]) -> DependencyTree:
    """Return one tree with the packages of all, and one root that depends on what their roots depend on."""
    nodes: dict[str, Node] = {}
    for tree in trees:
        for key, node in tree.nodes.items():
            before = nodes.get(key)
            asks = dict.fromkeys((*(before.asks if before else ()), *node.asks))
            nodes[key] = node._replace(asks=tuple(asks))
    asks = dict.fromkeys(ask for tree in trees for root in tree.roots for ask in root.asks)
    return DependencyTree(source, nodes, (Node(source, source, "", tuple(asks)),))


def _by_key(text: str) -> dict[str, Mapping[str, Any]]:
    """Return the packages of uv's lock by their keys in a tree."""
    return {key_of(table): table for table in package_tables("uv.lock", text)}


def _with_origins(bare: Resolution, tables: Mapping[str, Mapping[str, Any]]) -> Resolution:
    """Return the resolution with each package's registry, digest and environments from uv's lock."""
    packages: list[ResolvedPackage] = []
    for package in bare.packages:
        if table := tables.get(package.key):
            files = (*filter(None, [table.get("sdist")]), *table.get("wheels", ()))
            source = table_of(table, "source")
            origin = {
                "origin": str(source.get("registry", source.get("url", ""))),
                "digest": str(next((file.get("hash", "") for file in files), "")),
                "environments": " or ".join(texts(table.get("resolution-markers"))),
            }
            package = package.model_copy(update=origin)
        packages.append(package)
    return bare.model_copy(update={"packages": tuple(packages)})


def _uv() -> str:
    try:
        return f"uv {version('uv')}"
    except PackageNotFoundError:
        return "uv"
