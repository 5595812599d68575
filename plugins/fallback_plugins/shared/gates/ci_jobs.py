"""What a project's CI runs: the jobs of GitHub, GitLab, CircleCI, Azure and Travis in one form.

Of a matrix, one value is taken for each name: Linux before others, the newest release of Python or Node
that is no preview and no PyPy, otherwise the first. Each value that names a folder of the repository makes
a job. Expressions are evaluated as far as the files decide; a line that needs more is left out, and
a condition that needs more holds, as on a push. Secrets are never read.
"""

import itertools
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

#: Files of CI that are read: the largest monorepos have about 100 workflows.
MAX_CI_FILES = 120

#: Jobs of one file: large ones have about 60.
MAX_JOBS = 200

#: Steps of one job, those of called workflows and commands among them.
MAX_STEPS = 200

#: Names of a matrix: large ones have about 8.
MAX_AXES = 12

#: Folders that a matrix names: large monorepos have about 40 members in one.
MAX_PLACES = 60

#: Combinations of a matrix that are looked at to find one that isn't excluded.
MAX_COMBINATIONS = 256

#: Jobs, steps and lines of a file that are looked at, with those that it calls: large files have about 500.
_MAX_READ = 5_000
_WORKFLOW = re.compile(r"\.github/workflows/[^/]+\.ya?ml")
#: Variables, of all levels together: a project sets some tens.
_MAX_VARIABLES = 200


@dataclass(frozen=True)
class Step:
    """One script of a job. ``source``: its place, for people."""

    text: str
    source: str
    folder: str = "."
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """One job with a matrix settled. ``rank``: the lower, the likelier it is the project's unit tests."""

    source: str
    steps: tuple[Step, ...]
    services: tuple[str, ...]
    rank: tuple[int, ...]

    @property
    def system(self) -> str:
        """The file that has it."""
        return self.source.partition(",")[0]

    @property
    def is_aside(self) -> bool:
        """Is it by hand, for another system, lenient, or by its name no job of the project's own tests?"""
        return self.rank[0] > _ON_PUSH or self.rank[1] > 0 or self.rank[2] >= _ASIDE


def ci_jobs(paths: Sequence[str], read: Callable[[str], Any]) -> list[Job]:
    """Return the jobs of all CI files, the likeliest first; those that only a schedule or a release starts
    if there is nothing else. ``paths``: all tracked files; ``read`` returns a YAML file's document."""
    folders = {posixpath.dirname(path) for path in paths}
    names = {
        posixpath.basename(posixpath.dirname(path)) for path in paths if path.endswith(_MANIFESTS)
    }

    def is_place(text: str) -> bool:
        return bool(text) and (posixpath.normpath(text) in folders or text in names)

    jobs: list[Job] = []
    for path in sorted(path for path in paths if _WORKFLOW.fullmatch(path))[:MAX_CI_FILES]:
        jobs += itertools.islice(_GitHub(path, read, is_place).jobs(), MAX_JOBS)
    for path, jobs_of in (
        (".gitlab-ci.yml", _gitlab),
        (".circleci/config.yml", _circle),
        ("azure-pipelines.yml", _azure),
        (".azure-pipelines.yml", _azure),
        (_TRAVIS, _travis),
    ):
        if path in paths:
            jobs += itertools.islice(jobs_of(path, read), MAX_JOBS)
    if any(job.system != _TRAVIS for job in jobs):  # a left-over of many projects
        jobs = [
            replace(job, rank=(job.rank[0], 1, *job.rank[2:])) if job.system == _TRAVIS else job
            for job in jobs
        ]
    jobs.sort(key=lambda job: job.rank)
    regular = [job for job in jobs if job.rank[0] < _SELDOM]
    return regular or jobs


_MANIFESTS = ("package.json", "pyproject.toml", "setup.py", "setup.cfg")
_TRAVIS = ".travis.yml"
Reader = Callable[[str], Any]

#: Ranks by what starts a job: a push; a person, or another repository; a schedule or a release.
_ON_PUSH, _BY_HAND, _SELDOM = 0, 1, 2

_ASIDE = 3
_NAMED_CI = re.compile(r"continuous.?integration|python.?package|^integration$", re.IGNORECASE)
_NAMED_BEST = re.compile(r"unit|^(?:run[-_ ]?)?tests?$|^pytest$", re.IGNORECASE)
_NAMED_TEST = re.compile(
    r"test|tox|nox|jest|\bci\b|\bbuild\b|\bmain\b|python|node|spec",
    re.IGNORECASE,
)
_NAMED_LATER = re.compile(
    r"integration|interop|external|aarch64|docker.?image|migration|e2e|\bload|end-to-end|smoke|accept"
    r"|browser|ui[-_ ]|perf|bench|nightly|canary|prerelease|pre-release|pypy|legacy|experimental|downstream"
    r"|upstream|fuzz|windows|macos|mac\b|win\b|bun\b|deno|alpine|cygwin|freebsd|dev[-_ ]?deps|mobile|devbox"
    r"|compat|sonar|lowest|mutation|min(?:imum)?[-_ ]?(?:dep|ver)|sdist|dist\b|consumer|types?\b|typing"
    r"|shared|fastly|workerd|coverage-win",
    re.IGNORECASE,
)
_NAMED_OTHER = re.compile(
    r"lint|format|style|docs?\b|deploy|release|publish|codeql|audit|security|label|changelog|mypy|pyright"
    r"|stale|benchmark|typecheck|type-check|pre-commit|prettier|package\b|wheel|docker|image|preview"
    r"|netlify|storybook|cffconvert|semgrep|scorecard",
    re.IGNORECASE,
)


def _by_name(*names: str) -> int:
    """Return 0 or 1 for a job that its names make the tests, 2 if they say nothing, 3 for tests of
    something else, 4 for none."""
    text = _NAMED_CI.sub("ci", " ".join(names))
    if _NAMED_LATER.search(text):
        return _ASIDE
    if _NAMED_OTHER.search(text) and not re.search(r"test", text, re.IGNORECASE):
        return _ASIDE + 1
    if any(_NAMED_BEST.search(name) for name in names):
        return 0
    return 1 if _NAMED_TEST.search(text) else 2


# -- expressions -------------------------------------------------------------------------------------------


class _Unknown:
    """What only a run of CI decides."""


UNKNOWN = _Unknown()
_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>\d+(?:\.\d+)*)|(?P<op>\|\||&&|==|!=|<=|>=|[()!,\[\]<>])|(?P<name>[A-Za-z_][\w-]*(?:\.[\w*-]+)*))"
)


class _Expression:
    """An expression of GitHub, over what a file alone tells. An absent name is empty, as it is there."""

    def __init__(self, text: str, scope: Mapping[str, Any]) -> None:
        self._tokens: list[tuple[str, str]] = []
        at = 0
        while at < len(text) and len(self._tokens) < 500:
            match = _TOKEN.match(text, at)
            if match is None:
                self._tokens = [] if text[at:].strip() else self._tokens
                break
            at = match.end()
            self._tokens.append((match.lastgroup or "", match[match.lastgroup or 0]))
        self._at, self._scope, self._depth = 0, scope, 0

    def value(self) -> Any:
        """Return a text, a table, a truth value, or ``UNKNOWN``."""
        if not self._tokens:
            return UNKNOWN
        found = self._or()
        return found if self._at == len(self._tokens) else UNKNOWN

    def _next(self, *ops: str) -> bool:
        if self._at < len(self._tokens) and self._tokens[self._at] in [("op", op) for op in ops]:
            self._at += 1
            return True
        return False

    def _or(self) -> Any:
        value = self._and()
        while self._next("||"):
            other = self._and()
            value = other if value is UNKNOWN or not _truth(value) else value
        return value

    def _and(self) -> Any:
        value = self._equal()
        while self._next("&&"):
            other = self._equal()
            if value is UNKNOWN or other is UNKNOWN:
                is_false = (value is not UNKNOWN and not _truth(value)) or (
                    other is not UNKNOWN and not _truth(other)
                )
                value = False if is_false else UNKNOWN
            else:
                value = other if _truth(value) else value
        return value

    def _equal(self) -> Any:
        value = self._unary()
        while self._at < len(self._tokens) and self._tokens[self._at][1] in (
            "==",
            "!=",
            "<",
            ">",
            "<=",
            ">=",
        ):
            op = self._tokens[self._at][1]
            self._at += 1
            other = self._unary()
            if value is UNKNOWN or other is UNKNOWN:
                value = UNKNOWN
            elif op in ("==", "!="):
                value = (_text(value).lower() == _text(other).lower()) is (op == "==")
            else:
                left, right = _version(_text(value)), _version(_text(other))
                value = {
                    "<": left < right,
                    ">": left > right,
                    "<=": left <= right,
                    ">=": left >= right,
                }[op]
        return value

    def _unary(self) -> Any:
        self._depth += 1
        try:
            if self._depth > 50 or self._at >= len(self._tokens):
                return UNKNOWN
            if self._next("!"):
                value = self._unary()
                return value if value is UNKNOWN else not _truth(value)
            if self._next("("):
                value = self._or()
                return value if self._next(")") else UNKNOWN
            kind, text = self._tokens[self._at]
            self._at += 1
            if kind == "text":
                return text[1:-1].replace("''", "'")
            if kind == "number":
                return text
            return (
                self._call(text)
                if self._next("(")
                else self._name(text)
                if kind == "name"
                else UNKNOWN
            )
        finally:
            self._depth -= 1

    def _name(self, name: str) -> Any:
        if name in ("true", "false"):
            return name == "true"
        while self._next("["):
            key = self._or()
            if not self._next("]") or not isinstance(key, str):
                return UNKNOWN
            name += f".{key}"
        value: Any = self._scope
        for key in name.split("."):
            if isinstance(value, _Unknown):
                return UNKNOWN
            if not isinstance(value, Mapping):
                return ""
            if key not in value and value is self._scope:
                return UNKNOWN
            value = value.get(key, "")
        return value

    def _call(self, name: str) -> Any:
        arguments: list[Any] = []
        while not self._next(")"):
            arguments.append(self._or())
            if not self._next(",") and self._tokens[self._at : self._at + 1] != [("op", ")")]:
                return UNKNOWN
        name = name.lower()
        if name in ("always", "success", "cancelled", "failure"):
            return name in ("always", "success")
        if UNKNOWN in arguments or not arguments:
            return UNKNOWN
        texts = [_text(one) for one in arguments]
        if name in ("startswith", "endswith", "contains") and len(texts) == 2:
            left, right = texts[0].lower(), texts[1].lower()
            if name == "contains":
                return right in left
            return left.startswith(right) if name == "startswith" else left.endswith(right)
        if name == "format":
            return re.sub(
                r"\{(\d)\}",
                lambda match: texts[int(match[1]) + 1] if int(match[1]) + 1 < len(texts) else "",
                texts[0],
            )
        return (
            texts[0]
            if name in ("tojson", "fromjson") and not texts[0].startswith(("{", "["))
            else UNKNOWN
        )


def _truth(value: Any) -> bool:
    return value not in ("", False, None, "0") if not isinstance(value, dict | list) else True


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else ""


def _filled(text: str, scope: Mapping[str, Any]) -> str | None:
    """Return a text with its expressions replaced; None: one of them needs a run of CI."""
    unknown = False

    def value(match: re.Match[str]) -> str:
        nonlocal unknown
        found = _Expression(match[1], scope).value()
        unknown |= found is UNKNOWN or isinstance(found, dict | list)
        return _text(found)

    found = re.sub(r"\$\{\{(.{0,2000}?)\}\}", value, text, flags=re.DOTALL)
    return None if unknown else found


def _holds(condition: Any, scope: Mapping[str, Any]) -> bool:
    """Does a condition hold on a push, as far as is known?"""
    if not isinstance(condition, str) or not condition.strip():
        return True
    inner = condition.strip()
    if match := re.fullmatch(r"\$\{\{(.*)\}\}", inner, re.DOTALL):
        inner = match[1]
    value = _Expression(inner, scope).value()
    return value is UNKNOWN or _truth(value)


# -- a matrix ----------------------------------------------------------------------------------------------


def _version(text: str) -> tuple[int, ...]:
    match = re.search(r"\d+(?:\.\d+)*", text)
    return (
        tuple(int(part) for part in match[0].split(".")[:4]) if match and len(match[0]) < 20 else ()
    )


_OTHER_SYSTEM = re.compile(r"windows|macos|mac|osx|darwin|freebsd|arm", re.IGNORECASE)
_PREVIEW = re.compile(
    r"pypy|graal|nightly|canary|experimental|preview|dev\b|rc\d*\b|alpha|beta|jruby|-t\b|\d+\.\d+t\b|main\b|master\b|min",
    re.IGNORECASE,
)


def _cost(name: str, value: Any) -> tuple[Any, ...]:
    """Return what orders the values of a name: the least is taken."""
    text = " ".join(map(str, value.values())) if isinstance(value, dict) else _text(value)
    text += " min" * bool(re.search(r"lint|quality|docs|style|mypy|typing|coverage|format", text))
    is_runtime = isinstance(value, dict) or re.search(
        r"py|node|version|ruby|ver$", name, re.IGNORECASE
    )
    newest = tuple(-part for part in _version(_runtime_of(value))) if is_runtime else ()
    return bool(_OTHER_SYSTEM.search(text)), bool(_PREVIEW.search(text)), newest or (0,)


def _runtime_of(value: Any) -> str:
    if not isinstance(value, dict):
        return _text(value)
    return next(
        (
            _text(one)
            for key, one in value.items()
            if re.search(r"py|node|version", str(key)) and _version(_text(one))
        ),
        "",
    )


def _matrix(strategy: Any) -> dict[str, Any]:
    """Return one combination of a matrix, as the module says."""
    matrix = _mapping(_mapping(strategy).get("matrix"))
    axes = {name: value for name, value in matrix.items() if name not in ("include", "exclude")}
    axes = dict(itertools.islice(axes.items(), MAX_AXES))
    lists = {
        name: sorted(value, key=partial(_cost, name))[:20]
        for name, value in axes.items()
        if isinstance(value, list) and value
    }
    unknown: dict[str, Any] = {name: UNKNOWN for name in axes if name not in lists}
    excluded = [one for one in _list(matrix.get("exclude")) if isinstance(one, dict)]
    included = [one for one in _list(matrix.get("include")) if isinstance(one, dict)]
    chosen: dict[str, Any] = {}
    if lists:
        combinations = [
            dict(zip(lists, values, strict=True))
            for values in itertools.islice(itertools.product(*lists.values()), MAX_COMBINATIONS)
        ]
        fits = (
            one
            for one in combinations
            if not any(entry and entry.items() <= one.items() for entry in excluded)
        )
        chosen = next(fits, combinations[0])
    elif included and not unknown:
        return dict(min(included, key=lambda one: _cost("", one)))
    for entry in included:
        shared = entry.keys() & chosen.keys()
        if all(entry[name] == chosen[name] for name in shared):
            chosen = {**entry, **chosen}
    if isinstance(_mapping(strategy).get("matrix"), str):
        return {"": UNKNOWN}
    return {**unknown, **chosen}


def _matrices(strategy: Any, is_place: Callable[[str], bool]) -> list[tuple[str, dict[str, Any]]]:
    """Return the chosen combination, and one for each further value that names a folder of the repository:
    each member of a monorepo is tested. Each has a label, which is empty for the first."""
    best = _matrix(strategy)
    found = [("", best)]
    matrix = _mapping(_mapping(strategy).get("matrix"))
    lists = {
        name: value
        for name, value in matrix.items()
        if isinstance(value, list) and name not in ("include", "exclude")
    }
    rows = [row for row in _list(matrix.get("include")) if isinstance(row, dict)]
    for name in {**lists, **(rows[0] if rows and not lists else {})}:
        values = lists.get(name) or [row.get(name) for row in rows]
        places = [one for one in dict.fromkeys(map(_text, values)) if is_place(one)][:MAX_PLACES]
        for place in places if len(places) > 1 else ():
            if place != best.get(name):
                narrowed = (
                    {**matrix, name: [place]}
                    if lists
                    else {"include": [row for row in rows if row.get(name) == place]}
                )
                found.append((f" ({place})", _matrix({"matrix": narrowed})))
    return found


# -- GitHub ------------------------------------------------------------------------------------------------


class _GitHub:
    """The jobs of one workflow."""

    def __init__(self, path: str, read: Reader, is_place: Callable[[str], bool]) -> None:
        self._path, self._read, self._is_place = path, read, is_place
        self._left = _MAX_READ

    def jobs(self) -> Iterator[Job]:
        """Yield each job that can be read."""
        document = _mapping(self._read(self._path))
        starts = document.get("on", document.get("true"))
        events = list(starts) if isinstance(starts, dict | list) else [starts]
        if (
            "push" in events
            or "pull_request" in events
            or "merge_group" in events
            or starts is None
        ):
            when = _ON_PUSH if not _is_tags_only(starts) else _SELDOM
        else:
            is_by_hand = {"workflow_dispatch", "pull_request_target", "workflow_run"}.intersection(
                map(str, events)
            )
            when = _BY_HAND if is_by_hand and "schedule" not in events else _SELDOM
        if events == ["workflow_call"]:
            return
        yield from self._jobs(document, when, self._path, {}, {}, 0)

    def _jobs(
        self,
        document: Mapping[str, Any],
        when: int,
        label: str,
        inputs: Mapping[str, Any],
        given: Mapping[str, str],
        depth: int,
    ) -> Iterator[Job]:
        workflow = {**given, **_literal(document.get("env"), {"inputs": inputs, "env": {}})}
        for name, job in list(_mapping(document.get("jobs")).items())[:MAX_JOBS]:
            if isinstance(job, dict):
                for suffix, matrix in _matrices(job.get("strategy"), self._is_place):
                    self._left -= 1
                    if self._left < 0:
                        return
                    scope = {
                        "matrix": UNKNOWN if "" in matrix else matrix,
                        "inputs": inputs,
                        "env": workflow,
                        "runner": {"os": "Linux", "arch": "X64"},
                        "github": _GITHUB,
                        "job": {"status": "success"},
                    }
                    yield from self._job(
                        f"{name}{suffix}", job, document, when, label, scope, depth
                    )

    def _job(
        self,
        name: str,
        job: Mapping[str, Any],
        document: Mapping[str, Any],
        when: int,
        label: str,
        scope: dict[str, Any],
        depth: int,
    ) -> Iterator[Job]:
        if not _holds(job.get("if"), scope):
            return
        called = job.get("uses")
        if isinstance(called, str):
            yield from self._called(called, name, job, when, label, scope, depth)
            return
        env = {**scope["env"], **_literal(job.get("env"), scope)}
        scope = {**scope, "env": env}
        runs_on = _filled(_text(job.get("runs-on")), scope) or ""
        defaults = _mapping(_mapping(document.get("defaults")).get("run")) | _mapping(
            _mapping(job.get("defaults")).get("run")
        )
        services = _services(_mapping(job.get("services")).values(), scope)
        steps: list[Step] = []
        self._add_steps(
            job.get("steps"), scope, defaults, f"{label}, job {name}", steps, services, 0
        )
        is_other = bool(re.search(r"windows|macos", runs_on, re.IGNORECASE))
        title = _text(job.get("name"))
        title = "" if "${{" in title else title
        is_lenient = _text(job.get("continue-on-error")) == "true"
        file_rank = _by_name(posixpath.basename(self._path).partition(".")[0])
        by_name = max(_by_name(name, title), _ASIDE if file_rank >= _ASIDE and not depth else 0)
        rank = (when, int(is_other or is_lenient), by_name, len(services) > 0)
        yield Job(
            f"{label}, job {name}", tuple(steps), tuple(dict.fromkeys(services)), (*rank, file_rank)
        )

    def _add_steps(
        self,
        described: Any,
        scope: Mapping[str, Any],
        defaults: Mapping[str, Any],
        label: str,
        steps: list[Step],
        services: list[str],
        depth: int,
    ) -> None:
        """Add the scripts of steps, and of this repository's own actions, and the services they start."""
        env = scope["env"]
        for step in _list(described)[:MAX_STEPS]:
            self._left -= 1
            if not isinstance(step, dict) or len(steps) >= MAX_STEPS or self._left < 0:
                continue
            if isinstance(step.get("parallel"), list) and depth < 3:
                self._add_steps(
                    step["parallel"], scope, defaults, label, steps, services, depth + 1
                )
            action, given = _text(step.get("uses")), _mapping(step.get("with"))
            text = step.get("run") or given.get("run") or given.get("command") or ""
            services += [*_service_of_action(action), *_started(_text(text))]
            if not _holds(step.get("if"), scope) or _text(step.get("continue-on-error")) == "true":
                continue
            own = _literal(step.get("env"), scope)
            inner = {**scope, "env": {**env, **own}}
            if action.startswith("./") and depth < 3:
                path = posixpath.normpath(action)
                document = next(
                    filter(
                        None,
                        (_mapping(self._read(f"{path}/action.{end}")) for end in ("yml", "yaml")),
                    ),
                    {},
                )
                inner["inputs"] = _inputs(document.get("inputs"), given, scope)
                self._add_steps(
                    _mapping(document.get("runs")).get("steps"),
                    inner,
                    {},
                    label,
                    steps,
                    services,
                    depth + 1,
                )
            if not isinstance(text, str) or not text:
                continue
            shell = _text(step.get("shell") or defaults.get("shell"))
            filled = _filled_lines(text, inner)
            given_folder = _text(step.get("working-directory") or defaults.get("working-directory"))
            folder = _filled(given_folder or ".", scope)
            if (
                filled is None
                or folder is None
                or re.search(r"python|pwsh|powershell|cmd|perl", shell)
            ):
                continue
            title = _text(step.get("name")) or _text(step.get("id"))
            title = _filled(title, scope) or title
            source = f'{label}, step "{_short(title or text)}"'
            steps.append(Step(filled, source, folder or ".", {**env, **own}))

    def _called(
        self,
        called: str,
        name: str,
        job: Mapping[str, Any],
        when: int,
        label: str,
        scope: Mapping[str, Any],
        depth: int,
    ) -> Iterator[Job]:
        """Yield the jobs of a workflow of this repository that a job calls, ranked by the caller's name."""
        path = called.removeprefix("./")
        if depth > 2 or not _WORKFLOW.fullmatch(path):
            return
        document = _mapping(self._read(path))
        starts = _mapping(_mapping(document.get("on")).get("workflow_call"))
        inputs = _inputs(starts.get("inputs"), _mapping(job.get("with")), scope)
        for inner in self._jobs(
            document, when, f"{label}, job {name} → {path}", inputs, {}, depth + 1
        ):
            mine, its = _by_name(name), inner.rank[2]
            by_name = mine if its == 2 else max(mine, its) if mine >= _ASIDE else its
            yield replace(inner, rank=(*inner.rank[:2], by_name, *inner.rank[3:]))


def _inputs(declared: Any, given: Mapping[str, Any], scope: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs of a called workflow or action."""
    found: dict[str, Any] = {
        str(key): _text(_mapping(one).get("default")) for key, one in _mapping(declared).items()
    }
    for key, value in given.items():
        filled = _filled(_text(value), scope)
        found[str(key)] = UNKNOWN if filled is None else filled
    return found


_GITHUB = {
    "event_name": "push",
    "workspace": "$PWD",
    "actor": "",
    "event": UNKNOWN,
    "repository": UNKNOWN,
    "ref": UNKNOWN,
    "ref_name": UNKNOWN,
    "ref_type": "branch",
    "sha": UNKNOWN,
    "job": UNKNOWN,
    "run_id": UNKNOWN,
    "token": UNKNOWN,
    "repository_owner": UNKNOWN,
    "base_ref": "",
    "head_ref": "",
}


def _is_tags_only(starts: Any) -> bool:
    push = _mapping(starts).get("push") if isinstance(starts, dict) else None
    only = isinstance(push, dict) and "tags" in push and "branches" not in push
    return only and "pull_request" not in starts


def _filled_lines(text: str, scope: Mapping[str, Any]) -> str | None:
    """Return a script with its expressions replaced. A line that needs a run of CI is left out, unless it
    is a part of a compound command."""
    whole = _filled(text, scope)
    if whole is not None:
        return whole
    if re.search(r"^\s*(?:if|for|while|case)\b|<<|\\$", text, re.MULTILINE):
        return None
    lines = (_filled(line, scope) for line in text.splitlines())
    return "\n".join(line for line in lines if line is not None)


def _literal(table: Any, scope: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables whose values are known from the file, and are no secrets."""
    found: dict[str, str] = {}
    for name, value in list(_mapping(table).items())[:_MAX_VARIABLES]:
        filled = (
            _filled(value, scope) if isinstance(value, str) and "secrets." not in value else None
        )
        if (
            filled is not None
            and re.fullmatch(r"[A-Za-z_]\w*", str(name))
            and "\0" not in filled
            and "$PWD" not in filled
            and name not in _COLOURS
        ):
            found[str(name)] = filled
    return found


#: Variables that only colour the output, which is read here.
_COLOURS = frozenset(
    {"FORCE_COLOR", "PY_COLORS", "CLICOLOR_FORCE", "MYPY_FORCE_COLOR", "COLOR", "TERM", "COLORTERM"}
)


# -- services ----------------------------------------------------------------------------------------------

_SERVICES = (
    ("postgres", r"postgres|postgis|timescale|pgvector"),
    ("redis", r"redis|valkey|keydb|dragonfly"),
    ("mysql", r"mysql|percona"),
    ("mariadb", r"mariadb"),
    ("mongo", r"mongo"),
    ("rabbitmq", r"rabbitmq"),
    ("elasticsearch", r"elasticsearch"),
    ("opensearch", r"opensearch"),
    ("memcached", r"memcache"),
    ("kafka", r"kafka|redpanda"),
    ("zookeeper", r"zookeeper"),
    ("minio", r"minio"),
    ("localstack", r"localstack"),
    ("mssql", r"mssql|azure-sql-edge"),
    ("clickhouse", r"clickhouse"),
    ("cassandra", r"cassandra|scylla"),
    ("dynamodb", r"dynamodb"),
    ("neo4j", r"neo4j"),
    ("ldap", r"ldap"),
    ("selenium", r"selenium"),
    ("nats", r"\bnats\b"),
    ("consul", r"consul"),
    ("etcd", r"etcd"),
    ("httpbin", r"httpbin"),
)


def _service(image: str) -> str:
    """Return the usual name of what an image runs: that of the image itself if no other is known."""
    path = re.sub(r"[^\w./-]", "", re.sub(r":[^/]*$", "", image.partition("@")[0]))[-200:]
    plain = path.rpartition("/")[2][:60]
    known = (
        name
        for text in (plain, path)
        for name, pattern in _SERVICES
        if re.search(pattern, text, re.IGNORECASE)
    )
    return next(known, plain)


def _services(entries: Any, scope: Mapping[str, Any]) -> list[str]:
    found = []
    for entry in list(entries)[:50]:
        image = (
            entry
            if isinstance(entry, str)
            else _mapping(entry).get("image") or _mapping(entry).get("name")
        )
        filled = _filled(_text(image), scope)
        if filled:
            found.append(_service(filled))
    return found


def _service_of_action(action: str) -> list[str]:
    name = action.partition("@")[0]
    if not re.search(
        r"redis|mongo|mysql|mariadb|postgres|elastic|rabbit|memcache|opensearch|kafka",
        name,
        re.IGNORECASE,
    ):
        return []
    return [service for service, pattern in _SERVICES if re.search(pattern, name, re.IGNORECASE)][
        :1
    ]


def _started(text: str) -> list[str]:
    """Return the services that a script starts."""
    found = []
    for match in itertools.islice(
        re.finditer(
            r"(?:systemctl\s+(?:re)?start|service|brew\s+services\s+start)\s+([\w@.-]+)|docker\s+run\s([^\n;|&]*)",
            text,
        ),
        20,
    ):
        words = (match[1] or match[2] or "").split()
        names = [
            name
            for word in words
            for name, pattern in _SERVICES
            if re.search(pattern, word.partition(":")[0], re.IGNORECASE)
        ]
        found += names[-1:]
    return found


# -- GitLab ------------------------------------------------------------------------------------------------

_GITLAB_WORDS = frozenset(
    {
        "stages",
        "variables",
        "default",
        "include",
        "workflow",
        "image",
        "services",
        "cache",
        "before_script",
        "after_script",
        "pages",
        "spec",
    }
)


def _gitlab(path: str, read: Reader) -> Iterator[Job]:
    document = _mapping(read(path))
    for include in _list(document.get("include"))[:20]:
        local = include if isinstance(include, str) else _mapping(include).get("local")
        if isinstance(local, str) and not local.startswith("http"):
            document = {**_mapping(read(local.lstrip("/"))), **document}
    default = _mapping(document.get("default"))
    left = [_MAX_READ]
    for name, own in itertools.islice(document.items(), _MAX_READ):
        if name in _GITLAB_WORDS or name.startswith(".") or not isinstance(own, dict):
            continue
        job = _gitlab_job(own, document, 0)
        if not job.get("script"):
            continue
        matrix = _mapping(next(iter(_list(_mapping(job.get("parallel")).get("matrix"))), {}))
        chosen = {
            key: value[0] if isinstance(value, list) and value else value
            for key, value in matrix.items()
        }
        variables = {
            **_mapping(document.get("variables")),
            **_mapping(job.get("variables")),
            **chosen,
        }
        env = _literal(
            {key: _mapping(value).get("value", value) for key, value in variables.items()}, {}
        )
        env = {key: value for key, value in env.items() if "$" not in value}
        services = _services(
            job.get("services") or document.get("services") or default.get("services") or (), {}
        )
        before = job.get(
            "before_script", document.get("before_script", default.get("before_script"))
        )
        source = f"{path}, job {name}"
        text = "\n".join(
            [*_lines(before, document, left), *_lines(job.get("script"), document, left)]
        )
        rules = str(job.get("rules") or "") + str(job.get("only") or "")
        is_seldom = bool(re.search(r"schedule|\btags\b|CI_COMMIT_TAG", rules)) and not re.search(
            r"merge_request|push|branches", rules
        )
        stage = _text(job.get("stage"))
        rank = (_SELDOM if is_seldom else _ON_PUSH, 0, _by_name(name, stage), len(services) > 0, 1)
        yield Job(source, (Step(text, source, ".", env),), tuple(dict.fromkeys(services)), rank)


def _gitlab_job(job: Mapping[str, Any], document: Mapping[str, Any], depth: int) -> dict[str, Any]:
    """Return a job with what it extends."""
    found: dict[str, Any] = {}
    extends = job.get("extends")
    for name in extends[:5] if isinstance(extends, list) else [extends]:
        base = document.get(name) if isinstance(name, str) else None
        if isinstance(base, dict) and depth < 5:
            found |= _gitlab_job(base, document, depth + 1)
    variables = {**_mapping(found.get("variables")), **_mapping(job.get("variables"))}
    return {**found, **job, "variables": variables}


def _lines(value: Any, document: Mapping[str, Any], left: list[int], depth: int = 0) -> list[str]:
    """Return the lines of a script: a text, a list, or a ``!reference`` to another job's. ``left``: how
    many more may be read."""
    left[0] -= 1
    if left[0] < 0 or depth > 4:
        return []
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        return []
    if depth and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], str):
        other = document.get(value[0])
        if isinstance(other, dict) and value[1] in other:
            return _lines(other[value[1]], document, left, depth + 1)
    return [line for one in value[:MAX_STEPS] for line in _lines(one, document, left, depth + 1)]


# -- CircleCI ----------------------------------------------------------------------------------------------


def _circle(path: str, read: Reader) -> Iterator[Job]:
    document = _mapping(read(path))
    jobs, left = _mapping(document.get("jobs")), [_MAX_READ]
    used: dict[str, tuple[int, dict[str, Any]]] = {}
    workflows = {
        key: value
        for key, value in _mapping(document.get("workflows")).items()
        if isinstance(value, dict)
    }
    for workflow in workflows.values():
        is_seldom = "schedule" in str(workflow.get("triggers") or "")[:2000]
        for entry in _list(workflow.get("jobs"))[:MAX_JOBS]:
            name, given = (
                (entry, {})
                if isinstance(entry, str)
                else next(iter(_mapping(entry).items()), ("", {}))
            )
            given = _mapping(given)
            matrix = _mapping(_mapping(given.get("matrix")).get("parameters"))
            chosen = {
                key: min(value, key=partial(_cost, str(key)))
                for key, value in matrix.items()
                if isinstance(value, list) and value
            }
            filters = str(_mapping(given.get("filters")).get("branches") or "")[:500]
            seldom = is_seldom or ("ignore" in filters and "/.*/" in filters)
            used.setdefault(str(name), (_SELDOM if seldom else _ON_PUSH, {**given, **chosen}))
    for name, job in jobs.items():
        if not isinstance(job, dict) or (workflows and name not in used):
            continue
        when, given = used.get(str(name), (_ON_PUSH, {}))
        executor = job.get("executor")
        executor = _mapping(executor).get("name") if isinstance(executor, dict) else executor
        base = (
            _mapping(_mapping(document.get("executors")).get(executor))
            if isinstance(executor, str)
            else {}
        )
        job = {**base, **job}
        images = [one for one in _list(job.get("docker")) if isinstance(one, dict)]
        parameters = _parameters(job, given)
        env = _circle_env(images[0].get("environment") if images else {}, parameters) | _circle_env(
            job.get("environment"), parameters
        )
        services = [
            _service(_circle_filled(_text(one.get("image")), parameters)) for one in images[1:]
        ]
        folder = _circle_filled(_text(job.get("working_directory")), parameters)
        folder = "." if not folder or folder.startswith(("~", "/")) else folder
        source = f"{path}, job {name}"
        steps = list(
            itertools.islice(
                _circle_steps(job.get("steps"), document, parameters, source, folder, env, 0, left),
                MAX_STEPS,
            )
        )
        other = bool(_OTHER_SYSTEM.search(f"{executor} {'macos' in job}".replace("False", "")))
        rank = (when, int(other), _by_name(str(name)), len(services) > 0, 1)
        yield Job(source, tuple(steps), tuple(dict.fromkeys(services)), rank)


def _parameters(owner: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, str]:
    found = {}
    for key, one in _mapping(owner.get("parameters")).items():
        value = given.get(key, _mapping(one).get("default", ""))
        if isinstance(value, str):
            found[str(key)] = value
    return found


def _circle_filled(text: str, parameters: Mapping[str, str]) -> str:
    return re.sub(
        r"<<\s*(?:parameters|matrix)\.([\w-]+)\s*>>",
        lambda match: parameters.get(match[1], ""),
        text,
    )


def _circle_env(table: Any, parameters: Mapping[str, str]) -> dict[str, str]:
    pairs: dict[str, Any] = {}
    for one in table if isinstance(table, list) else [table]:
        pairs |= _mapping(one)
    literal = _literal(
        {key: _circle_filled(_text(value), parameters) for key, value in pairs.items()}, {}
    )
    return {key: value for key, value in literal.items() if "$" not in value and "<<" not in value}


def _circle_steps(
    steps: Any,
    document: Mapping[str, Any],
    parameters: Mapping[str, str],
    source: str,
    folder: str,
    env: Mapping[str, str],
    depth: int,
    left: list[int],
) -> Iterator[Step]:
    commands = _mapping(document.get("commands"))
    for step in _list(steps)[:MAX_STEPS]:
        left[0] -= 1
        if left[0] < 0:
            return
        name, value = (
            (step, {}) if isinstance(step, str) else next(iter(_mapping(step).items()), ("", {}))
        )
        if name == "run":
            table = _mapping(value)
            text = _circle_filled(
                value if isinstance(value, str) else _text(table.get("command")), parameters
            )
            if (
                not text
                or _text(table.get("background")) == "true"
                or _text(table.get("when")) == "on_fail"
                or ("<<" in text and "<<" not in str(value))
            ):
                continue
            title = _text(table.get("name")) or text
            inner = _circle_filled(_text(table.get("working_directory")), parameters)
            inner = folder if not inner or inner.startswith("~") else inner
            yield Step(
                text,
                f'{source}, step "{_short(title)}"',
                inner,
                {**env, **_circle_env(table.get("environment"), parameters)},
            )
        elif name in ("when", "unless") and isinstance(value, dict) and depth < 4:
            yield from _circle_steps(
                value.get("steps"), document, parameters, source, folder, env, depth + 1, left
            )
        elif isinstance(commands.get(name), dict) and depth < 4:
            inner_parameters = _parameters(commands[name], _mapping(value))
            inner_parameters = {
                key: _circle_filled(one, parameters) for key, one in inner_parameters.items()
            }
            yield from _circle_steps(
                commands[name].get("steps"),
                document,
                inner_parameters,
                source,
                folder,
                env,
                depth + 1,
                left,
            )


# -- Azure -------------------------------------------------------------------------------------------------


def _azure(path: str, read: Reader) -> Iterator[Job]:
    document = _mapping(read(path))
    trigger = _text(document.get("trigger"))
    when = _SELDOM if trigger == "none" and _text(document.get("pr")) == "none" else _ON_PUSH
    stages = [one for one in _list(document.get("stages")) if isinstance(one, dict)] or [document]
    top = _azure_variables(document.get("variables"))
    for stage in stages[:MAX_JOBS]:
        jobs = [one for one in _list(stage.get("jobs")) if isinstance(one, dict)]
        for job in jobs[:MAX_JOBS] or [stage]:
            name = (
                _text(job.get("job") or job.get("deployment"))
                or _text(stage.get("stage"))
                or "steps"
            )
            matrix = _mapping(_mapping(job.get("strategy")).get("matrix"))
            rows = [row for row in matrix.values() if isinstance(row, dict)]
            variables = {
                **top,
                **_azure_variables(stage.get("variables")),
                **_azure_variables(job.get("variables")),
            }
            if rows:
                chosen = min(rows, key=lambda one: _cost("", one))
                variables |= {str(key): _text(value) for key, value in chosen.items()}
            image = _azure_filled(
                _text(
                    _mapping(job.get("pool") or stage.get("pool") or document.get("pool")).get(
                        "vmImage"
                    )
                ),
                variables,
            )
            source = f"{path}, job {name}"
            steps = list(
                itertools.islice(_azure_steps(job.get("steps"), variables, source), MAX_STEPS)
            )
            env = {
                key: value
                for key, value in variables.items()
                if re.fullmatch(r"[A-Za-z_]\w*", key) and "$" not in value
            }
            steps = [replace(step, env={**env, **step.env}) for step in steps]
            services = _services(_mapping(job.get("services")).values(), {})
            is_other = bool(re.search(r"win|mac", image, re.IGNORECASE))
            rank = (
                when,
                int(is_other),
                _by_name(name, _text(job.get("displayName"))),
                len(services) > 0,
                1,
            )
            yield Job(source, tuple(steps), tuple(dict.fromkeys(services)), rank)


def _azure_variables(value: Any) -> dict[str, str]:
    if isinstance(value, list):
        pairs = {_text(one.get("name")): one.get("value") for one in value if isinstance(one, dict)}
    else:
        pairs = _mapping(value)
    return {
        str(key): one
        for key, one in list(pairs.items())[:_MAX_VARIABLES]
        if key and isinstance(one, str) and "${{" not in one
    }


def _azure_filled(text: str, variables: Mapping[str, str]) -> str:
    text = re.sub(
        r"\$\((?:Build\.SourcesDirectory|System\.DefaultWorkingDirectory|Build\.Repository\.LocalPath)\)",
        "$PWD",
        text,
    )
    return re.sub(r"\$\(([\w.]+)\)", lambda match: variables.get(match[1], match[0]), text)


def _azure_steps(steps: Any, variables: Mapping[str, str], source: str) -> Iterator[Step]:
    for step in _list(steps)[:MAX_STEPS]:
        if not isinstance(step, dict):
            continue
        inputs = _mapping(step.get("inputs"))
        task = _text(step.get("task")).partition("@")[0].lower()
        text = _text(step.get("script") or step.get("bash"))
        if not text and task in ("cmdline", "bash"):
            text = _text(inputs.get("script"))
        if not text and task in ("npm", "yarn"):
            given = inputs.get("customCommand") or inputs.get("arguments") or inputs.get("command")
            text = f"{task} {_text(given)}"
        if not text or re.search(r"Windows|Darwin", _text(step.get("condition"))):
            continue
        text = _azure_filled(text, variables)
        title = _text(step.get("displayName")) or text
        folder = (
            _text(
                step.get("workingDirectory")
                or inputs.get("workingDirectory")
                or inputs.get("workingDir")
            )
            or "."
        )
        yield Step(
            text,
            f'{source}, step "{_short(title)}"',
            _azure_filled(folder, variables),
            _azure_variables(step.get("env")),
        )


# -- Travis ------------------------------------------------------------------------------------------------


def _travis(path: str, read: Reader) -> Iterator[Job]:
    document = _mapping(read(path))
    included = _mapping(document.get("jobs") or document.get("matrix"))
    entries = [one for one in _list(included.get("include")) if isinstance(one, dict)]
    with_script = [one for one in entries if one.get("script")]
    rows = ([document] if document.get("script") or not with_script else []) + with_script[
        :MAX_JOBS
    ]
    top = _travis_env(document.get("env"))
    for number, row in enumerate(rows):
        job = {**document, **row}
        name = (
            _text(row.get("name"))
            or _text(row.get("stage"))
            or ("script" if number == 0 else f"include {number}")
        )
        script = _lines(job.get("script"), {}, [MAX_STEPS])
        languages = job.get("language")
        if not script and _text(
            languages[0] if isinstance(languages, list) and languages else languages
        ) in ("node_js", "node", ""):
            script = ["npm test"] if languages or job.get("node_js") else []
        before = [
            *_lines(job.get("before_install"), {}, [MAX_STEPS]),
            *_lines(job.get("install"), {}, [MAX_STEPS]),
            *_lines(job.get("before_script"), {}, [MAX_STEPS]),
        ]
        source = f"{path}, {name}"
        services = job.get("services")
        services = [
            _service(one)
            for one in (services if isinstance(services, list) else [services])
            if isinstance(one, str)
        ]
        services = [one for one in services if one not in ("docker", "xvfb")]
        env = top if row is document else {**top, **_travis_env(row.get("env"))}
        rank = (
            _ON_PUSH,
            int(_text(row.get("os")) in ("osx", "windows")),
            _by_name(name if row is not document else "test"),
            len(services) > 0,
            2,
        )
        yield Job(
            source,
            (Step("\n".join([*before, *script]), source, ".", env),),
            tuple(dict.fromkeys(services)),
            rank,
        )


def _travis_env(value: Any) -> dict[str, str]:
    if isinstance(value, dict) and {"global", "matrix", "jobs"} & value.keys():
        jobs = value.get("matrix", value.get("jobs"))
        first = jobs[:1] if isinstance(jobs, list) else jobs
        return {**_travis_env(_all_of(value.get("global"))), **_travis_env(first)}
    if isinstance(value, list):
        return _travis_env(value[0]) if value else {}
    if isinstance(value, dict):
        return {key: one for key, one in _literal(value, {}).items() if "$" not in one}
    pairs = re.findall(r"([A-Za-z_]\w*)=(\"[^\"]*\"|'[^']*'|\S*)", _text(value))
    return {
        key: one.strip("\"'")
        for key, one in pairs[:_MAX_VARIABLES]
        if "$" not in one and "`" not in one
    }


def _all_of(value: Any) -> Any:
    """Return the variables of a list of lines as one text."""
    if not isinstance(value, list):
        return value
    return " ".join(one for one in value if isinstance(one, str))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:57]}…"


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
