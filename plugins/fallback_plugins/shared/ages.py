"""Rules on the age of releases: a project's own, and this tool's ``--release-age`` (ADR-0110).

Each client reads its own settings, in its own unit. What a client does not enforce in our runs is enforced
here: no package that a fix newly brings in may be younger than a rule allows.
"""

import configparser
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from fallback_audit.vocabulary import BlockerKind, RefusalReason
from fallback_tier.advisory import canonical_name
from fallback_tier.advisory.versions import is_orderable
from fallback_tier.errors import RecipeError, RepositoryError, ToolError
from fallback_tier.files.inputs import parse_toml
from fallback_tier.outcome import Blocker, Move
from fallback_tier.repo import RepoContext

#: Returns when a release was published, by package and version; None if the registry does not say. Raises
#: RecipeError, ToolError if it can't be reached.
PublishedAt = Callable[[str, str], datetime | None]

_DAY, _MINUTE, _SECOND = timedelta(days=1), timedelta(minutes=1), timedelta(seconds=1)

#: Words for units, by their first letters ("d", "days"); no client takes months.
_UNITS = {
    "w": timedelta(weeks=1),
    "d": _DAY,
    "h": timedelta(hours=1),
    "m": _MINUTE,
    "s": _SECOND,
}
_PART = re.compile(
    r"\s*(\d+(?:\.\d+)?)\s*(w|d|h|m|s|(?:week|day|hour|hr|minute|min|second|sec)s?)\b[\s,]*"
)
_ISO_PART = re.compile(r"(\d+(?:\.\d+)?)([wdhms])")

#: A pattern that exempts versions of a package: ``name@1.0.0 || 1.1.0``.
_VERSIONED = re.compile(r"(?P<name>@?[^@]+)@(?:npm:)?(?P<versions>.+)")

#: The cutoff of a rule whose value can't be read: no release is older.
_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class AgeRule:
    """One rule. ``text``: as it is written, with its ``value``; ``until``: a release that was published
    later is too new; ``age``: the duration from which ``until`` follows, None for a fixed date.

    ``only``: the packages that it is about; if empty, all but ``exempt`` (patterns of names).
    """

    text: str
    value: str
    file: str
    line: int
    until: datetime
    age: timedelta | None = None
    only: frozenset[str] = frozenset()
    exempt: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The rule with its file and line."""
        return f"`{self.text}` ({self.file}:{self.line})" if self.line else f"`{self.text}`"

    def covers(self, package: str, version: str) -> bool:
        """Return whether the rule is about a release."""
        if self.only:
            return package in self.only
        return not any(_matches(pattern, package, version) for pattern in self.exempt)

    def refusal(self, package: str, version: str, published: datetime) -> str:
        """Return the sentence for a release that is too new."""
        begin = f"{package} {version} was published on {_moment(published)}, and {self.label}"
        if self.until == _NEVER:
            return f"{begin} can't be read as a date or a duration, so that it admits nothing."
        if self.age is None:
            return f"{begin} admits releases until {_moment(self.until)} only."
        return f"{begin} admits it from {_moment(published + self.age)} on."


@dataclass
class Ages:
    """The rules that hold for one project, and their results for releases.

    ``exceptions``: packages that a person exempts for this fix, with the reason. ``by_lock``: whether a
    lock keeps what the fix takes; otherwise the project's client applies its own rules at each install.
    """

    ecosystem: str
    rules: tuple[AgeRule, ...] = ()
    exceptions: Mapping[str, str] = field(default_factory=dict)
    published_at: PublishedAt = lambda _package, _version: None
    by_lock: bool = True
    #: By package: why a safe release of it was not chosen.
    refused: dict[str, RecipeError] = field(default_factory=dict)
    _said: dict[tuple[str, str], RecipeError | None] = field(default_factory=dict)
    _excepted: dict[tuple[str, str], str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        repo: RepoContext,
        ecosystem: str,
        path: str,
        published_at: PublishedAt,
        *,
        by_lock: bool = True,
    ) -> "Ages":
        """Return the rules for the project at ``path``: those of its folder and of the folders above, and
        the person's own."""
        days, age_exceptions = repo.settings.release_age_days, repo.settings.age_exceptions
        rules = [*_rules(repo, ecosystem, posixpath.dirname(path))]
        if days:
            age = timedelta(days=days)
            rules.append(AgeRule(f"--release-age {days}", "", "", 0, datetime.now(UTC) - age, age))
        exceptions = {
            canonical_name(ecosystem, exception.package): exception.reason
            for exception in age_exceptions
        }
        return cls(ecosystem, tuple(rules), exceptions, published_at, by_lock)

    def until(self, package: str = "") -> datetime | None:
        """Return the strictest cutoff for a package, or for all if it is empty; None if there is no
        rule."""
        rules = (rule for rule in self.rules if not package or rule.covers(package, ""))
        exempt = canonical_name(self.ecosystem, package) in self.exceptions
        return None if exempt else min((rule.until for rule in rules), default=None)

    def admits(self, package: str, version: str) -> bool:
        """Return whether a fix may choose this release; if not, why is added to ``refused``."""
        error = self.problem(package, version)
        if error is not None:
            self.refused.setdefault(package, error)
        return error is None

    def problem(self, package: str, version: str) -> RecipeError | None:
        """Return why a release may not be brought in; None if it may. If its date is unknown, it may
        not."""
        if (package, version) not in self._said:
            self._said[package, version] = self._problem(package, version)
        return self._said[package, version]

    def reason_behind(
        self, reason: RefusalReason, sentence: str, package: str = ""
    ) -> RecipeError | None:
        """Return the error of the rule that caused a refusal, of any package if ``package`` is empty. The
        rule is the cause if no fixed version is old enough, or if a result was refused with the rule's
        sentence. Return None if the cause is another."""
        if reason is RefusalReason.NO_FIXED_VERSION:
            names = [package] if package else sorted(self.refused)
            return next(filter(None, map(self.refused.get, names)), None)
        for error in filter(None, self._said.values()):
            words = [
                word for blocker in error.blockers for word in (blocker.package, blocker.constraint)
            ]
            if error.problem in sentence or all(word in sentence for word in words):
                return error
        return None

    def first_problem(self, releases: Iterable[tuple[str, str]]) -> RecipeError | None:
        """Return the refusal of the first of several releases that may not be brought in. A version that is
        not a registry's has no date, and is left out."""
        for package, version in sorted(set(releases)) if self.rules else ():
            if is_orderable(self.ecosystem, version):
                error = self.problem(package, version)
                if error is not None:
                    return error
        return None

    def notes(self, releases: Iterable[tuple[str, str]]) -> Iterator[str]:
        """Yield a sentence for each of these releases that an exception admitted."""
        for release in sorted({*releases}):
            if release in self._excepted:
                yield self._excepted[release]

    def exception_until(self, package: str, version: str) -> datetime | None:
        """Return the moment up to which an exception has to admit releases to admit this one: the end
        of the day of its publication. Return None if there is no exception, or no date."""
        if package not in self.exceptions:
            return None
        published = self.published_at(package, version)
        if published is None:
            return None
        day = published.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        return day + _DAY

    def _problem(self, package: str, version: str) -> RecipeError | None:
        rules = [rule for rule in self.rules if rule.covers(package, version)]
        if not rules:
            return None
        strictest = min(rules, key=lambda rule: rule.until)
        why = "The registry does not say"
        try:
            published = self.published_at(package, version)
        except (RecipeError, ToolError) as error:
            published, why = None, f"{error.problem.rstrip('.')}: it is unknown"
        if published is None:
            problem = (
                f"{why} when {package} {version} was published, and {strictest.label} can't be applied"
                " without that."
            )
        elif published > strictest.until:
            problem = strictest.refusal(package, version, published)
        else:
            return None
        date = _moment(published) if published else "date unknown"
        blocker = Blocker(
            kind=BlockerKind.AGE_RULE,
            package=f"{package} {version} ({date})",
            constraint=f"`{strictest.text}`",
            file=strictest.file,
        )
        reason = self.exceptions.get(canonical_name(self.ecosystem, package))
        project_rules = [
            rule for rule in rules if rule.line and (published is None or published > rule.until)
        ]
        if reason is not None and project_rules and not self.by_lock:
            return RecipeError(
                RefusalReason.RELEASE_TOO_NEW,
                f"{problem} No lock would keep it: an install by {project_rules[0].label} would fail, "
                "in spite of an exception for this fix.",
                next_step=f"Exempt {package} in {project_rules[0].file}, or wait until the rule admits it.",
                blockers=(blocker,),
                kind="not_kept_by_a_lock",
            )
        if reason is not None:
            today = datetime.now(UTC).date()
            self._excepted[package, version] = (
                f"{problem} It is taken all the same, by the exception of {today} for {package}: {reason}"
            )
            return None
        exception = f"--age-exception {package} --because REASON"
        wait = "" if published is None or strictest.age is None else "Wait until then, or take"
        return RecipeError(
            RefusalReason.RELEASE_TOO_NEW,
            problem,
            next_step=f"{wait or 'Take'} it for this fix alone: `{exception}`.",
            blockers=(blocker,),
        )


def unchecked(repo: RepoContext, ecosystem: str, moves: Iterable[Move]) -> Iterator[str]:
    """Yield a sentence for each rule on releases that were chosen without asking a registry."""
    # One file of each folder: all of them have the same rules.
    files = {posixpath.dirname(move.manifest): move.manifest for move in moves}
    projects = (Ages.of(repo, ecosystem, file, lambda *_: None) for file in files.values())
    for label in dict.fromkeys(rule.label for ages in projects for rule in ages.rules):
        yield f"{label} is not checked: no registry was asked when the releases were published."


def _moment(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _matches(pattern: str, package: str, version: str) -> bool:
    """Return whether a pattern matches a release. ``*`` matches within a name or a scope; versions match
    exactly."""
    if versioned := _VERSIONED.fullmatch(pattern):
        versions = {part.strip() for part in versioned["versions"].split("||")}
        return versioned["name"] == package and version in versions
    words = re.split(r"(\*+|\?)", pattern)
    letters = {"*": "[^/]*", "?": "[^/]"}
    glob = "".join(
        letters.get(word, ".*" if word[:1] == "*" else re.escape(word)) for word in words
    )
    return re.fullmatch(glob, package) is not None


# --- what settings say ------------------------------------------------------------------------------


def duration_in(text: str, unit: timedelta | None = None) -> timedelta | None:
    """Return the duration in ``7 days``, ``3d``, ``P7D``, ``PT12H``, or in a bare number of ``unit``;
    None if the text is not a duration."""
    plain = text.strip().lower().removesuffix(" ago")
    if unit is not None and re.fullmatch(r"\d+(?:\.\d+)?", plain):
        return float(plain) * unit
    if plain.startswith("p"):
        days, _, times = plain[1:].partition("t")
        # Before the T an m is months, which no client takes.
        parts = [*_ISO_PART.findall(days.replace("m", "?")), *_ISO_PART.findall(times)]
        whole = "p" + "".join(map("".join, _ISO_PART.findall(days.replace("m", "?"))))
        whole += "t" * bool(times) + "".join(map("".join, _ISO_PART.findall(times)))
    else:
        parts = _PART.findall(plain)
        whole = plain if plain and not _PART.sub("", plain) else ""
    if not parts or whole != plain:
        return None
    return sum((float(number) * _UNITS[word[0]] for number, word in parts), timedelta())


def moment_in(text: str, *, day_ends: bool = False) -> datetime | None:
    """Return the moment that a text states; of a day its start, or its end if ``day_ends``. None: no
    date."""
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    is_day = len(text.strip()) == len("2026-01-31")
    at = at + _DAY if is_day and day_ends else at
    return at if at.tzinfo else at.replace(tzinfo=UTC)


@dataclass(frozen=True)
class _Setting:
    """How a file writes one rule: the key, the unit of a bare number, and the key of what is exempt."""

    key: str
    unit: timedelta | None = None
    exempt: str = ""
    #: Keys of tables that lead to it.
    below: tuple[str, ...] = ()
    day_ends: bool = False


#: By file name: the rules that it may hold. npm counts days, pnpm and yarn minutes, bun seconds.
_SETTINGS = {
    "npm": {
        ".npmrc": (
            _Setting("min-release-age", _DAY, "min-release-age-exclude"),
            _Setting("before", None, "min-release-age-exclude"),
            _Setting("minimum-release-age", _MINUTE, "minimum-release-age-exclude"),
        ),
        "pnpm-workspace.yaml": (
            _Setting("minimumReleaseAge", _MINUTE, "minimumReleaseAgeExclude"),
        ),
        ".yarnrc.yml": (_Setting("npmMinimalAgeGate", _MINUTE, "npmPreapprovedPackages"),),
        "bunfig.toml": (
            _Setting("minimumReleaseAge", _SECOND, "minimumReleaseAgeExcludes", ("install",)),
        ),
    },
    "PyPI": {
        "uv.toml": (
            _Setting("exclude-newer", None, "exclude-newer-package", day_ends=True),
            _Setting("exclude-newer", None, "exclude-newer-package", ("pip",), day_ends=True),
        ),
        "pyproject.toml": (
            _Setting("exclude-newer", None, "exclude-newer-package", ("tool", "uv"), day_ends=True),
            _Setting(
                "exclude-newer", None, "exclude-newer-package", ("tool", "uv", "pip"), day_ends=True
            ),
        ),
        "poetry.toml": (_Setting("min-release-age", _DAY, "min-release-age-exclude", ("solver",)),),
        **{
            name: (
                _Setting("uploaded-prior-to", below=("global",)),
                _Setting("uploaded-prior-to", below=("install",)),
            )
            for name in ("pip.conf", "pip.ini")
        },
    },
}


def _rules(repo: RepoContext, ecosystem: str, folder: str) -> Iterator[AgeRule]:
    """Yield, for each kind of file, the rules of the nearest one in or above the folder that has any."""
    for name, settings in _SETTINGS[ecosystem].items():
        at = folder
        while True:
            path = posixpath.join(at, name)
            rules = [*_in_file(repo, ecosystem, path, settings)] if repo.has(path) else []
            yield from rules
            if rules or not at:
                break
            at = posixpath.dirname(at)


def _in_file(
    repo: RepoContext, ecosystem: str, path: str, settings: Iterable[_Setting]
) -> Iterator[AgeRule]:
    try:
        text = repo.read_text(path)
    except RepositoryError:
        return  # the file's own project reports it
    document = _document(path, text)
    for setting in settings:
        table: Any = document
        for key in setting.below:
            table = table.get(key) if isinstance(table, Mapping) else None
        if not isinstance(table, Mapping):
            continue
        exempt = table.get(setting.exempt)
        value_by_package = exempt if isinstance(exempt, Mapping) else {}
        canonical = {
            canonical_name(ecosystem, str(name)): value for name, value in value_by_package.items()
        }
        names = tuple(canonical) if value_by_package else _texts(exempt)
        names = tuple(canonical_name(ecosystem, name) for name in names)
        rule = _rule(path, text, setting.key, table.get(setting.key), setting)
        if rule is not None:
            yield replace(rule, exempt=names)
        for name, value in canonical.items():
            package_rule = _rule(path, text, setting.exempt, value, setting)
            if package_rule is not None:
                yield replace(
                    package_rule, text=f"{setting.exempt}: {name} = {value}", only=frozenset({name})
                )


def _rule(path: str, text: str, key: str, value: Any, setting: _Setting) -> AgeRule | None:
    if value is None or value is False:
        return None
    written = "a list or a table" if isinstance(value, dict | list) else str(value).strip()
    age = duration_in(written, setting.unit)
    at = moment_in(written, day_ends=setting.day_ends) if age is None else datetime.now(UTC) - age
    if age == timedelta() or not written:
        return None
    match = re.search(rf"^[^#;\n]*\b{re.escape(key)}\b", text, re.MULTILINE)
    line = text.count("\n", 0, match.end()) + 1 if match else 1
    between = ": " if path.endswith((".yaml", ".yml")) else "=" if "npmrc" in path else " = "
    return AgeRule(f"{key}{between}{written}", written, path, line, at or _NEVER, age)


def _document(path: str, text: str) -> Mapping[str, Any]:
    """Return the file's content; empty if it can't be parsed, which its client reports."""
    if path.endswith(".npmrc"):
        return _of_npmrc(text)
    if path.endswith((".yaml", ".yml")):
        import yaml

        try:
            document = yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506 (makes text only)
        except (yaml.YAMLError, RecursionError):
            return {}
        return document if isinstance(document, dict) else {}
    try:
        if path.endswith(".toml"):
            return parse_toml(text.removeprefix("\ufeff"))
        parser = configparser.RawConfigParser(strict=False)
        parser.read_string(text)
    except (ValueError, RecursionError, configparser.Error):
        return {}
    return {section: dict(parser[section]) for section in parser.sections()}


def _of_npmrc(text: str) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for line in text.splitlines():
        key, equals, value = line.strip().partition("=")
        key, value = key.strip(), value.strip().strip("\"'")
        if not equals or key[:1] in {"#", ";"}:
            continue
        name = key.removesuffix("[]")
        settings[name] = [*_texts(settings.get(name)), value] if name != key else value
    return settings


def _texts(value: Any) -> tuple[str, ...]:
    """Return the texts of a list, or the parts of a text with commas."""
    texts = value.split(",") if isinstance(value, str) else value
    items = texts if isinstance(texts, list | tuple) else ()
    return tuple(item.strip() for item in items if isinstance(item, str) and item.strip())
