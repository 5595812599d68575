"""The resolution of an install command's manifests: by uv, or by their pins (ADR-0099).

Nothing is built: an sdist's metadata is read from its archive. What can't be read is ``unresolved``.
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

#: Packages of one command without a wheel: each costs a listing, an archive and a run of uv.
MAX_WITHOUT_WHEEL = 10

#: An option for a whole requirements file, and the options of uv for it or a setting in ``[tool.uv]``.
_PRE = re.compile(r"^[ \t]*--pre\b", re.MULTILINE)
_CHOOSING = ("--prerelease=allow", "--resolution=lowest", "--resolution=lowest-direct")

_HASH = "--hash"

#: A compiler's comment on who requires a line.
_VIA = re.compile(r"#[ \t]*via\b")

_WORD = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")

_NAME = r"(?P<name>[A-Za-z0-9](?:[\w.-]{0,198}[A-Za-z0-9])?)"
_WHEELS_REQUIRED = re.compile(
    rf"Wheels are required for `{_NAME}`|"
    rf"(?<!\S){_NAME.replace('name', 'other')}[<>=!~]\S* has no wheels with a matching"
)
#: What uv says of a release, or a package, that the registry does not have.
_ABSENT = re.compile(
    rf"(?:no versions? of {_NAME}(?:\[[^\]]*\])?==|"
    rf"(?<!\S){_NAME.replace('name', 'other')} was not found in)"
)


def _absent(error: UvRefusedError) -> str:
    """The package of which the registry does not have what is asked for; empty: uv names none."""
    found = _ABSENT.search(one_line(error.output))
    return canonicalize_name(found["name"] or found["other"]) if found else ""


class UnknownPartError(RecipeError):
    """What a part of a tree brings in is unknown."""


def resolve(
    client: UvClient,
    source: str,
    lines: Wanted,
    *options: str,
    is_trial: bool = False,
    known: Callable[[], Collection[Unresolved]] = tuple,
) -> Resolution:
    """What a set of requirements becomes, without its declarations. Raises RecipeError, UnknownPartError
    if more of it is unknown than ``known`` returns, ToolError. ``is_trial``: only what has wheels is looked
    for."""
    text, unknown = _locked(client, lines, options, is_trial=is_trial)
    open_parts = [it for it in unknown if not it.names and not is_trial]
    more = [it for it in open_parts if it not in known()]
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
    """What the manifests of one command resolve to; ``path`` names it.

    ``made`` runs the client, ``known`` does not.
    """

    repo: RepoContext
    clients: ClientRunner
    path: str
    texts: Mapping[str, str]
    #: What no fix changes: of a manifest, environments of other tools, and builds; of a program, commands.
    only_tools: bool = False
    #: No client may run: what was kept answers.
    only_kept: bool = False
    #: The rules on the age of releases: a client that knows those of the project's files installs by them.
    ages: Ages = field(default_factory=lambda: Ages(ECOSYSTEM))
    #: Whether the resolution was made by these rules.
    is_by_ages: bool = False
    #: The day of the resolution, once it was taken from what an earlier run kept.
    kept_since: date | None = None
    #: Why uv can't resolve the pins together, once they were taken as they are.
    pins_reason: str = ""
    _skipped: list[Unresolved] = field(default_factory=list)
    _read_folders: dict[str, tuple[Mapping[str, str], Sequence[str]]] = field(default_factory=dict)

    @cached_property
    def wanted(self) -> Wanted:
        """What uv is given; the rest is in ``_skipped``. Raises RecipeError: not TOML."""
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

    def strict(self, patched: Mapping[str, str] = NO_TEXTS) -> Reading:
        """Read manifests as the resolution did, and refuse what it had to leave out. ``patched``: a fix's
        texts by path: they count for folders that the set installs."""
        return Reading(self._folders(patched), folders=self._read_folders)

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
        """The lowest Python that the project supports; if it does not say, that on which it runs, or the
        one that installs."""
        folder = posixpath.dirname(self.path)
        paths = {name: posixpath.join(folder, name) for name in METADATA_FILES}
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
        return lowest_python(spec) if spec else pythons.named(self.repo, folder) or THIS_PYTHON

    @property
    def client(self) -> UvClient:
        """uv, for the lowest Python."""
        return UvClient(self.clients, self.python)

    @cached_property
    def known(self) -> Resolution | None:
        """The resolution, if no client has to run: the set is compiled or requires nothing, or (offline)
        it was kept. Raises RecipeError."""
        lines = self.wanted
        if not lines.requirements:
            return self._resolution(ResolvedBy.CLIENT, DependencyTree(self.path, {}), {})
        # Each line of the compiled files has a hash or a comment on what requires it: no hand added it.
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
        """The resolution. Raises RecipeError for text that can't be parsed."""
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
            # Never resolved elsewhere: another registry's package of the same name is not the same.
            reason = f"{self._own_index} names its own index, which is not asked."
            return self._unknown(reason, by_files=True)
        try:
            made = self._by_client()
        except UvRefusedError as error:
            found = _pins(self.wanted) if error.found_no_solution else None
            if found is None:
                by_files = error.found_no_solution
                return self._unknown(
                    error.problem, error.next_step, error.blockers, by_files=by_files
                )
            return self._by_pins(found, error)
        except RecipeError as error:
            return self._unknown(error.problem, error.next_step, error.blockers)
        except ToolError as error:
            return self._unknown(error.problem, error.next_step)
        self._cached.keep(made.model_dump_json())
        if not self.only_tools:
            SharedResolutions.of(self.repo).add(self.texts, made)
        return made

    @property
    def notes(self) -> Iterator[str]:
        """Yield sentences on how the resolution was made, if it was and is not this day's of uv."""
        if self.kept_since:
            yield f"{self.path} was resolved on {self.kept_since}, and not again (no registry is asked)."
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
                text, without = self._without_absent(part)
            except UvRefusedError as error:
                if not trees and part is parts[-1]:
                    raise
                part_of = self._not_resolved(error.problem, error.next_step, error.blockers)
                unknown.append(self._narrowed(part_of) if error.found_no_solution else part_of)
                continue
            trees.append(_named_tree(self.path, text))
            tables |= _by_key(text)
            unknown += map(self._narrowed, without)
        return self._resolution(ResolvedBy.CLIENT, _joined(self.path, trees), tables, unknown)

    def _without_absent(self, part: Wanted) -> tuple[str, list[Unresolved]]:
        """Of a command's packages, those that the registry does not have concern themselves alone."""
        missing: list[Unresolved] = []
        while True:
            try:
                text, unknown = self._lowest_python_lock(part)
            except UvRefusedError as error:
                absent = _absent(error)
                there = tuple(line for line in part.requirements if name_of(line) != absent)
                if not self._is_of_commands or not there or len(there) == len(part.requirements):
                    raise
                part = replace(part, requirements=there)
                problem = self._not_resolved(error.problem, error.next_step, error.blockers)
                missing.append(problem.model_copy(update={"names": frozenset({absent})}))
            else:
                return text, [*missing, *unknown]

    def _lowest_python_lock(self, part: Wanted) -> tuple[str, list[Unresolved]]:
        """For the lowest Python that is supported; if there is none, for the one that installs."""
        if ages := as_options(self.ages):
            # If a pin is too new itself, only a client without the rules installs it.
            with suppress(UvRefusedError):
                found = _locked(self.client, part, (*self.options, *ages))
                self.is_by_ages = True
                return found
        try:
            return _locked(self.client, part, self.options)
        except UvRefusedError as error:
            if self.python == THIS_PYTHON or not error.found_no_solution:
                raise
            with suppress(UvRefusedError):
                return _locked(UvClient(self.clients), part, self.options)
            raise

    def _parts(self) -> list[Wanted]:
        """What separate commands install: root files with what they include; groups and extras."""
        reading = Reading(self._folders(), [])
        if self._is_of_tools:
            return [*self._tools(reading)]
        if kind_of(self.path) is Kind.PYPROJECT:
            return self._groups(reading)
        if self._is_of_commands:
            return [*self._commands(reading)]
        return [wanted({it: self.texts[it] for it in root}, reading) for root in self.roots]

    @property
    def roots(self) -> Iterator[frozenset[str]]:
        """Each file that no other includes, with all that it includes. Constraints install nothing."""
        files = {
            path: text
            for path, text in self._installed.items()
            if kind_in_set(path) is Kind.REQUIREMENTS
        }
        if not files:
            yield frozenset(self.texts)
        included = {
            it for path, text in files.items() for it, _ in includes(path, text) if it != path
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
        """What environments of other tools, and builds, take apart from the project's dependencies."""
        own = own_name({"pyproject.toml": self.texts[self.path]})
        found = ((it.keys[:-1], it.value) for it in self._entries_of_tools)
        for lines in grouped(found).values():
            asked = reading.clean(self.path, lines)
            yield Wanted(tuple(line for line in asked if name_of(line) != own))

    def _commands(self, reading: Reading) -> Iterator[Wanted]:
        commands = install_commands(self.path, self.texts[self.path])
        return (reading.command(self.path, it) for it in commands)

    # --- by pins --------------------------------------------------------------------------------

    def _by_pins(self, pins: Mapping[str, str], error: UvRefusedError) -> Resolution:
        """The pins, with what they bring in as far as a registry has it."""
        lines = list(self.wanted.requirements)
        tree, unknown = self._flat(pins), list[Unresolved]()
        for _ in range(MAX_WITHOUT_WHEEL):
            over = tuple(f"{name}=={pins[name]}" for name in {name_of(line) for line in lines})
            try:
                asked = Wanted(tuple(lines), (), over)
                text, unknown = _locked(UvClient(self.clients), asked, self.options)
            except UvRefusedError as again:
                absent = _absent(again)
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
        made = self._resolution(ResolvedBy.PINS, tree, {}, unknown)
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
        return _with_origins(bare, tables)

    def _narrowed(self, skipped: Unresolved) -> Unresolved:
        """Among tests and examples, what can't be read, or no registry answers, concerns what its files
        name, and nothing else."""
        if not is_aside(self.path) or skipped.names:
            return skipped
        words = {
            canonicalize_name(it) for text in self.texts.values() for it in _WORD.findall(text)
        }
        return skipped.model_copy(update={"names": frozenset(words)})

    def _unknown(
        self,
        reason: str,
        next_step: str = "Commit a lock, or requirements that were compiled.",
        blockers: tuple[Blocker, ...] = (),
        *,
        by_files: bool = False,
    ) -> Resolution:
        """Nothing is known of what the command brings in. ``by_files``: because of what the files say, not
        because a registry or a client did not answer."""
        part = self._not_resolved(reason, next_step, blockers)
        if by_files:
            part = self._narrowed(part)
        return self._resolution(ResolvedBy.CLIENT, DependencyTree(self.path, {}), {}, [part])

    def _not_resolved(
        self, reason: str, next_step: str, blockers: tuple[Blocker, ...]
    ) -> Unresolved:
        reason = f"{self.path} was not resolved. {reason}"
        # A command that installs a tool, and a build, concern what they name, as far as is known.
        builds = self._is_of_tools and all(
            it.keys[0] == "build-system" or it.keys[:3] == ("tool", "hatch", "build")
            for it in self._entries_of_tools
        )
        is_narrow = self._is_of_commands or builds
        names = map(name_of, self.wanted.requirements) if is_narrow else ()
        placed = (it.model_copy(update={"file": it.file or self.path}) for it in blockers)
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

    def _folders(
        self, patched: Mapping[str, str] = NO_TEXTS, above: tuple[str, ...] = ()
    ) -> Callable[[str, Sequence[str]], Sequence[str]]:
        """Reads what a folder of the repository requires (``-e ./lib[test]``), with the folders that this
        requires. ``above``: those on the way to it. Raises RecipeError."""
        return lambda folder, extras: self._folder_lines(patched, above, folder, extras)

    def _folder_lines(
        self, patched: Mapping[str, str], above: tuple[str, ...], folder: str, extras: Sequence[str]
    ) -> Sequence[str]:
        if folder in above:
            return ()
        found = self._metadata_of(folder, patched)
        if not found:
            raise unresolvable(self.path, folder)
        reading = Reading(self._folders(patched, (*above, folder)))
        lines = reading.clean(
            posixpath.join(folder, next(iter(found))), project_lines(found, extras)
        )
        lines = [line for line in lines if name_of(line) not in {own_name(found), folder}]
        self._read_folders[folder] = found, lines
        return lines

    def _metadata_of(self, folder: str, patched: Mapping[str, str] = NO_TEXTS) -> dict[str, str]:
        """The texts of a folder's metadata files by name, and of ``hatch_hook``. Raises RecipeError."""
        found: dict[str, str] = {}

        def read(name: str) -> None:
            path = posixpath.normpath(posixpath.join(folder, name))
            if name and self.repo.has(path) and not is_installed(path):
                try:
                    found[name] = patched.get(path) or self.repo.read_text(path)
                except RepositoryError as error:
                    raise unresolvable(self.path, folder) from error

        for name in METADATA_FILES:
            read(name)
        read(hatch_hook(parse_toml("pyproject.toml", found.get("pyproject.toml", ""))))
        return found

    # --- kept for runs without a registry -------------------------------------------------------

    @cached_property
    def _cached(self) -> KeptResolution:
        lines = self.wanted
        hosts = self.clients.allowed_hosts(("uv",)) if isinstance(self.clients, KnowsHosts) else ()
        asked = [lines.requirements, lines.constraints, lines.overrides]
        return KeptResolution(
            [
                asked,
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
    """uv's lock with the releases without a wheel that an installer takes, and what of it is unknown.

    uv has passed them over, so that it is shown a stub of each, and takes those that all constraints admit:
    their archives are read, and it resolves again. ``is_trial``: take them only if nothing else serves.
    Raises RecipeError, ToolError.
    """
    learnt = _learnt(client.clients, client.python)
    stubs = {} if is_trial else dict(learnt.stubs)
    dark, left = set[str](), MAX_WITHOUT_WHEEL
    while True:
        shown = {stem: it.stub(learnt.said.get(stem) or ()) for stem, it in stubs.items()}
        try:
            scratch = client.lock(lines, *options, stubs=shown)
        except UvRefusedError as error:
            required = _WHEELS_REQUIRED.finditer(one_line(error.output))
            names = {str(canonicalize_name(it["name"] or it["other"])) for it in required}
            names |= set() if is_trial else error.passed_over
            found = {it.stem: it for name in names for it in learnt.required(client, lines, name)}
            if found.keys() <= stubs.keys():
                raise
            stubs |= found
            continue
        tables = package_tables("uv.lock", scratch.text)
        passed = frozenset[str]() if is_trial else scratch.passed_over
        found = {it.stem: it for it in learnt.above(client, lines, tables, passed, options)}
        for name in (name for name in passed if learnt.listed.get(name, ()) is None):
            newest = _highest(client, lines, name)
            held = {it.get("version") for it in tables if it["name"] == name}
            if newest is None or held != {newest.version}:
                dark.add(name)
        held = {f"{it['name'].replace('-', '_')}-{it.get('version')}" for it in tables}
        taken = [it for stem, it in stubs.items() if stem in held]
        unread = [it for it in taken if it.stem not in learnt.said]
        if not found.keys() <= stubs.keys():
            stubs |= found
        elif unread and left:
            for one in unread[:left]:
                learnt.said[one.stem] = sdist_requirements(one.file)
            left -= len(unread[:left])
        else:
            learnt.stubs |= {} if is_trial else stubs
            silent = [it for it in taken if learnt.said.get(it.stem, ()) is None]
            return scratch.text, [*_unread(silent, unread, sorted(dark))]


@dataclass
class _Learnt:
    """What a registry and its archives said: a set is resolved again with each change of it.

    ``listed``: releases without a wheel by package; None: its page can't be had. ``stubs``: those that uv
    was shown, and ``said``: what their archives say, by the names of their wheels.
    """

    listed: dict[str, tuple[Sdist, ...] | None] = field(default_factory=dict)
    stubs: dict[str, Sdist] = field(default_factory=dict)
    said: dict[str, tuple[str, ...] | None] = field(default_factory=dict)

    def required(self, client: UvClient, lines: Wanted, name: str) -> tuple[Sdist, ...]:
        """The releases of a package without which uv finds no solution."""
        if name not in self.listed:
            with suppress(RecipeError):  # a package that not every Python has
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
        """The releases of these packages that an installer may take in place of those of a lock."""
        held: dict[str, Version] = {}
        for table in tables:
            if "registry" in table_of(table, "source"):
                name, one = str(table["name"]), Version(str(table["version"]))
                held[name] = min(one, held.get(name, one))
        is_lowest = any("lowest" in option for option in options)
        for name in sorted(names):
            if name not in self.listed:
                self._list(client, name, _registries(tables))
            found = self.listed[name]
            for it in _by_uv(client, lines, name) if found is None else found:
                if is_lowest or name not in held or Version(it.version) > held[name]:
                    yield it

    def _list(self, client: UvClient, name: str, registries: Iterable[str]) -> None:
        self.listed[name] = None
        for registry in registries:
            with suppress(ToolError):
                found = sdists_of(registry, name, client.python)
                if found is not None:
                    self.listed[name] = found
                    return


@lru_cache(maxsize=8)  # what archives said is kept for so many sets of clients and Pythons
def _learnt(_clients: ClientRunner, _python: str) -> _Learnt:
    return _Learnt()


def _registries(tables: Iterable[Mapping[str, Any]]) -> list[str]:
    found = {str(table_of(table, "source").get("registry", "")) for table in tables}
    return sorted(found - {"", STUBS})


def _by_uv(client: UvClient, lines: Wanted, name: str) -> tuple[Sdist, ...]:
    """The highest release that a set's own lines admit, if it has no wheel: uv may log in to a registry."""
    release = _highest(client, lines, name)
    if release is None or any(file.name.endswith(".whl") for file in release.files):
        return ()
    return (Sdist(name, release.version, next(iter(release.files), None)),)


def _highest(client: UvClient, lines: Wanted, name: str) -> Release | None:
    """The highest release of a package that the set's own lines admit."""
    asked = (Requirement(line) for line in (*lines.requirements, *lines.constraints))
    specs = (str(it.specifier) for it in asked if canonicalize_name(it.name) == name)
    spec = ",".join(dict.fromkeys(filter(None, specs)))
    with suppress(RecipeError):
        return PackageIndex(client.clients).highest(name, spec, client.python)
    return None


def _unread(
    silent: Iterable[Sdist], unread: Iterable[Sdist], dark: Iterable[str]
) -> Iterator[Unresolved]:
    """Yield what is unknown: archives that don't say what they require, those that were not read, and
    packages whose page can't be read."""
    why = "has no wheel, and its archive does not say what it requires."
    found = [(f"{it.name} {it.version}", f"{it.name} {it.version} {why}") for it in silent]
    why = "has no wheel, and its archive was not looked into."
    found += [(it.name, f"{it.name} {it.version} {why}") for it in unread]
    why = "may have a release without a wheel: its page in the registry can't be read."
    found += [(name, f"{name} {why}") for name in dark]
    step = "Commit a lock or compiled requirements, so that what it brings in is known."
    for subject, reason in found:
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


def _named_tree(source: str, text: str) -> DependencyTree:
    tree = read_tree("uv.lock", text)
    roots = tuple(root._replace(key=source, name=source, version="") for root in tree.roots)
    return DependencyTree(source, tree.nodes, roots)


def _joined(source: str, trees: Sequence[DependencyTree]) -> DependencyTree:
    """One tree with the packages of all, and one root that asks for what their roots do."""
    nodes: dict[str, Node] = {}
    for tree in trees:
        for key, node in tree.nodes.items():
            before = nodes.get(key)
            asks = dict.fromkeys((*(before.asks if before else ()), *node.asks))
            nodes[key] = node._replace(asks=tuple(asks))
    asks = dict.fromkeys(ask for tree in trees for root in tree.roots for ask in root.asks)
    return DependencyTree(source, nodes, (Node(source, source, "", tuple(asks)),))


def _by_key(text: str) -> dict[str, Mapping[str, Any]]:
    """The packages of uv's lock, by their keys in a tree."""
    return {key_of(table): table for table in package_tables("uv.lock", text)}


def _with_origins(bare: Resolution, tables: Mapping[str, Mapping[str, Any]]) -> Resolution:
    """The resolution with each package's registry, digest and environments, as uv's lock has them."""
    packages: list[ResolvedPackage] = []
    for one in bare.packages:
        if table := tables.get(one.key):
            files = (*filter(None, [table.get("sdist")]), *table.get("wheels", ()))
            source = table_of(table, "source")
            origin = {
                "origin": str(source.get("registry", source.get("url", ""))),
                "digest": str(next((file.get("hash", "") for file in files), "")),
                "environments": " or ".join(texts(table.get("resolution-markers"))),
            }
            one = one.model_copy(update=origin)
        packages.append(one)
    return bare.model_copy(update={"packages": tuple(packages)})


def _uv() -> str:
    try:
        return f"uv {version('uv')}"
    except PackageNotFoundError:
        return "uv"
