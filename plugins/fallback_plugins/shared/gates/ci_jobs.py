"""What a project's CI runs: the jobs of GitHub, GitLab, CircleCI, Azure and Travis in one form.

GitHub's form is the form of all: the others' files are put into it, then read in the same way. Of a matrix,
one value is taken for each name: Linux before others, the newest release of Python or Node that is no
preview, otherwise the first. Each value that names a folder of the repository makes a job. A line that needs
what only a run of CI knows is left out; a condition that needs it holds, as on a push. Secrets are never read.
"""

import itertools
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

from fallback_plugins.shared.gates.expressions import (
    UNKNOWN,
    Scope,
    text_of,
    truth,
    version_of,
    workflow_value,
)

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

#: Variables of one table: a project sets some tens.
MAX_VARIABLES = 200

#: Jobs, steps and lines of a file that are looked at, with those that it calls: large files have about 500.
_MAX_READ = 5_000

#: Jobs, steps and templates that call each other: real chains have up to three.
_MAX_CALLS = 4

Reader: TypeAlias = Callable[[str], Any]


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
    def is_aside(self) -> bool:
        """Is it by hand, for another system, lenient, or by its name no job of the project's own tests?"""
        return self.rank[0] > _ON_PUSH or self.rank[1] > 0 or self.rank[2] >= _ASIDE


def ci_jobs(paths: Sequence[str], read: Reader) -> list[Job]:
    """Return the jobs of all CI files, the likeliest first; those that only a schedule or a release starts
    if there is nothing else. ``paths``: all tracked files; ``read`` returns a YAML file's document."""
    folders = {posixpath.dirname(it) for it in paths if it.endswith(_MANIFESTS)}
    places = frozenset({*map(posixpath.dirname, paths), *map(posixpath.basename, folders)} - {""})
    jobs: list[Job] = []
    for path in sorted(path for path in paths if _WORKFLOW.fullmatch(path))[:MAX_CI_FILES]:
        jobs += itertools.islice(_Workflow(path, places, read).jobs(mapping(read(path))), MAX_JOBS)
    for path, put_into_form in _OTHER_SYSTEMS.items():
        if path in paths:
            described = {"jobs": put_into_form(mapping(read(path)), read)}
            found = [*itertools.islice(_Workflow(path, places, read).jobs(described), MAX_JOBS)]
            if path == ".travis.yml" and jobs:  # a left-over of many projects
                found = [replace(job, rank=(job.rank[0], 1, *job.rank[2:])) for job in found]
            jobs += found
    jobs.sort(key=lambda job: job.rank)
    return [job for job in jobs if job.rank[0] < _SELDOM] or jobs


# -- ranks -------------------------------------------------------------------------------------------------

#: Ranks by what starts a job: a push; a person, or another repository; a schedule or a release.
_ON_PUSH, _BY_HAND, _SELDOM = 0, 1, 2

_ASIDE = 3
_NAMED_CI = re.compile(r"(?i)continuous.?integration|python.?package|^integration$")
_NAMED_BEST = re.compile(r"(?i)unit|^(?:run[-_ ]?)?tests?$|^pytest$")
_NAMED_TEST = re.compile(r"(?i)test|tox|nox|jest|\bci\b|\bbuild\b|\bmain\b|python|node|spec")
_NAMED_LATER = re.compile(
    r"(?i)integration|interop|external|aarch64|docker.?image|migration|e2e|\bload|end-to-end|smoke|accept|browser|ui[-_ ]"
    r"|perf|bench|nightly|canary|prerelease|pre-release|pypy|legacy|experimental|downstream|upstream|fuzz|windows|macos"
    r"|mac\b|win\b|bun\b|deno|alpine|cygwin|freebsd|dev[-_ ]?deps|mobile|devbox|compat|sonar|lowest|mutation"
    r"|min(?:imum)?[-_ ]?(?:dep|ver)|sdist|dist\b|consumer|types?\b|typing|shared|fastly|workerd|coverage-win"
)  # fmt: skip
_NAMED_OTHER = re.compile(
    r"(?i)lint|format|style|docs?\b|deploy|release|publish|codeql|audit|security|label|changelog|mypy|pyright|stale"
    r"|benchmark|typecheck|type-check|pre-commit|prettier|package\b|wheel|docker|image|preview|netlify|storybook"
    r"|cffconvert|semgrep|scorecard"
)  # fmt: skip


def _by_name(*names: str) -> int:
    """Return 0 or 1 for a job that its names make the tests, 2 if they say nothing, 3 for tests of
    something else, 4 for none."""
    text = _NAMED_CI.sub("ci", " ".join(names))
    if _NAMED_LATER.search(text):
        return _ASIDE
    if _NAMED_OTHER.search(text) and "test" not in text.lower():
        return _ASIDE + 1
    if any(_NAMED_BEST.search(name) for name in names):
        return 0
    return 1 if _NAMED_TEST.search(text) else 2


def _starts(events: Any) -> int:
    """Return the rank of what starts a workflow."""
    names = set(map(str, events)) if isinstance(events, dict | list) else {events}
    push = mapping(events).get("push")
    if isinstance(push, dict) and "tags" in push and "branches" not in push:
        names -= {"push"}
    if {"push", "pull_request", "merge_group", None} & names:
        return _ON_PUSH
    is_by_hand = {"workflow_dispatch", "pull_request_target", "workflow_run"} & names
    return _BY_HAND if is_by_hand and not {"schedule", "push"} & names else _SELDOM


# -- a matrix ----------------------------------------------------------------------------------------------

_OTHER_SYSTEM = re.compile(r"(?i)win|mac|osx|freebsd|arm")
_PREVIEW = re.compile(
    r"(?i)pypy|graal|nightly|canary|experimental|preview|dev\b|rc\d*\b|alpha|beta|jruby|-t\b|\d+\.\d+t\b|main\b|master\b|min"
    r"|lint|quality|docs|style|mypy|typing|coverage|format"
)  # fmt: skip


def _cost(name: str, value: Any) -> tuple[Any, ...]:
    """Return what orders the values of a name: the least is taken."""
    row = mapping(value)
    text = " ".join(map(str, row.values())) or text_of(value)
    runtimes = [text_of(it) for key, it in row.items() if re.search(r"py|node|version", str(key))]
    if not row and re.search(r"(?i)py|node|version|ruby|ver$", name):
        runtimes = [text]
    newest = next(filter(None, map(version_of, runtimes)), ())
    return (
        bool(_OTHER_SYSTEM.search(text)),
        bool(_PREVIEW.search(text)),
        tuple(-part for part in newest) or (0,),
    )


def _matrix(matrix: Mapping[str, Any]) -> dict[str, Any]:
    """Return one combination of a matrix, as the module says."""
    axes = [(str(name), it) for name, it in matrix.items() if name not in ("include", "exclude")]
    axes = axes[:MAX_AXES]
    lists = {
        name: sorted(values, key=partial(_cost, name))[:20]
        for name, values in axes
        if isinstance(values, list) and values
    }
    chosen = {name: UNKNOWN for name, _ in axes if name not in lists}
    included = [it for it in items(matrix.get("include")) if isinstance(it, dict)]
    if not axes and included:
        return dict(min(included, key=partial(_cost, "")))
    if lists:
        combinations = [
            dict(zip(lists, values, strict=True))
            for values in itertools.islice(itertools.product(*lists.values()), MAX_COMBINATIONS)
        ]
        excluded = [it for it in items(matrix.get("exclude")) if isinstance(it, dict) and it]
        kept = (it for it in combinations if not any(no.items() <= it.items() for no in excluded))
        chosen |= next(kept, combinations[0])
    for entry in included:
        if all(entry[name] == chosen[name] for name in entry.keys() & chosen.keys()):
            chosen = {**entry, **chosen}
    return chosen


def _matrices(strategy: Any, places: frozenset[str]) -> Iterator[tuple[str, Any]]:
    """Yield the chosen combination, and one for each further value that names a folder of the repository:
    each member of a monorepo is tested. Each has a label, which is empty for the first."""
    matrix = mapping(strategy).get("matrix")
    if not isinstance(matrix, dict):
        yield "", UNKNOWN if matrix else {}
        return
    best = _matrix(matrix)
    yield "", best
    rows = [row for row in items(matrix.get("include")) if isinstance(row, dict)]
    lists = {name: it for name, it in matrix.items() if isinstance(it, list) and name != "include"}
    lists = lists or {name: [row.get(name) for row in rows] for name in (rows[0] if rows else ())}
    for name, values in lists.items():
        named = [
            it for it in dict.fromkeys(map(text_of, values)) if posixpath.normpath(it) in places
        ]
        for place in named[:MAX_PLACES] if len(named) > 1 else ():
            if place != best.get(name):
                of_place = {"include": [row for row in rows if row.get(name) == place]}
                yield (
                    f" ({place})",
                    _matrix({**matrix, name: [place]} if name in matrix else of_place),
                )


# -- GitHub, and the form of all ---------------------------------------------------------------------------

_WORKFLOW = re.compile(r"\.github/workflows/[^/]+\.ya?ml")
_MANIFESTS = ("package.json", "pyproject.toml", "setup.py", "setup.cfg")
_GITHUB = {"event_name": "push", "workspace": "$PWD", "ref_type": "branch", "actor": ""} | dict.fromkeys(
    ("event", "repository", "ref", "ref_name", "sha", "job", "run_id", "token", "repository_owner"), UNKNOWN
)  # fmt: skip

#: Variables that only colour the output, which is read here.
_COLOURS = {"FORCE_COLOR", "PY_COLORS", "CLICOLOR_FORCE", "MYPY_FORCE_COLOR", "COLOR", "TERM"}


class _Workflow:
    """The jobs of one file."""

    def __init__(self, path: str, places: frozenset[str], read: Reader) -> None:
        self._path, self._places, self._read, self._left = path, places, read, _MAX_READ

    def _is_spent(self) -> bool:
        self._left -= 1
        return self._left < 0

    def jobs(self, document: Mapping[str, Any]) -> Iterator[Job]:
        """Yield each job that can be read."""
        events = document.get("on", document.get("true"))
        if events not in ("workflow_call", ["workflow_call"]) and events != {"workflow_call": ""}:
            yield from self._jobs(document, _starts(events), self._path, {}, 0)

    def _jobs(
        self, document: Mapping[str, Any], when: int, label: str, inputs: Any, depth: int
    ) -> Iterator[Job]:
        names = {"inputs": inputs, "env": {}, "runner": {"os": "Linux", "arch": "X64"}}
        names |= {"github": _GITHUB, "job": {"status": "success"}}
        names["env"] = literal(document.get("env"), Scope(names, ""))
        for name, job in list(mapping(document.get("jobs")).items())[:MAX_JOBS]:
            for suffix, matrix in _matrices(mapping(job).get("strategy"), self._places):
                if self._is_spent():
                    return
                scope = Scope({**names, "matrix": matrix}, "")
                if isinstance(job, dict) and _holds(job.get("if"), scope):
                    defaults = mapping(document.get("defaults"))
                    yield from self._job(
                        f"{name}{suffix}", job, defaults, when, label, scope, depth
                    )

    def _job(
        self,
        name: str,
        job: Mapping[str, Any],
        defaults: Mapping[str, Any],
        when: int,
        label: str,
        scope: Scope,
        depth: int,
    ) -> Iterator[Job]:
        if isinstance(called := job.get("uses"), str):
            yield from self._called(called, name, job, when, label, scope, depth)
            return
        scope = _with_env(scope, job.get("env"))
        defaults = {
            **mapping(defaults.get("run")),
            **mapping(mapping(job.get("defaults")).get("run")),
        }
        described = job.get("services")
        images = [*described.values()] if isinstance(described, dict) else items(described)
        services = [*_images(images, scope)]
        steps = [
            *self._steps(job.get("steps"), scope, defaults, f"{label}, job {name}", services, 0)
        ]
        title = text_of(job.get("name"))
        file_rank = _by_name(posixpath.basename(self._path).partition(".")[0])
        is_github = bool(_WORKFLOW.fullmatch(self._path))
        by_name = _by_name(name, "" if "${{" in title else title)
        if is_github and file_rank >= _ASIDE and not depth:
            by_name = max(by_name, _ASIDE)
        runs_on = filled(text_of(job.get("runs-on")), scope) or ""
        is_other = re.search(r"(?i)win|mac|osx", runs_on) or job.get("continue-on-error") == "true"
        when = job.get("starts", when)
        rank = (
            when,
            int(bool(is_other)),
            by_name,
            len(services) > 0,
            file_rank if is_github else 1,
        )
        yield Job(
            f"{label}, job {name}", tuple(steps[:MAX_STEPS]), tuple(dict.fromkeys(services)), rank
        )

    def _steps(
        self,
        described: Any,
        scope: Scope,
        defaults: Mapping[str, Any],
        label: str,
        services: list[str],
        depth: int,
    ) -> Iterator[Step]:
        """Yield the scripts of steps, and of this repository's own actions; add the services they start."""
        for step in items(described)[:MAX_STEPS]:
            if not isinstance(step, dict) or self._is_spent():
                continue
            action, given = text_of(step.get("uses")), mapping(step.get("with"))
            text = text_of(step.get("run") or given.get("run") or given.get("command"))
            services += [*_known(action.partition("@")[0]), *_started(text)]
            if not _holds(step.get("if"), scope) or step.get("continue-on-error") == "true":
                continue
            inner = _with_env(scope, step.get("env"))
            if action.startswith("./") and depth < _MAX_CALLS:
                folder = posixpath.normpath(action)
                documents = (
                    mapping(self._read(f"{folder}/action.{end}")) for end in ("yml", "yaml")
                )
                document = next(filter(None, documents), {})
                inputs = _inputs(document.get("inputs"), given, scope)
                own = Scope({**inner.names, "inputs": inputs}, "")
                called = mapping(document.get("runs")).get("steps")
                yield from self._steps(called, own, {}, label, services, depth + 1)
            run = _filled_lines(text, inner)
            place = step.get("working-directory") or defaults.get("working-directory")
            folder = filled(text_of(place) or ".", scope) or ""
            shell = text_of(step.get("shell") or defaults.get("shell"))
            if run and folder and not re.search(r"python|pwsh|powershell|cmd|perl", shell):
                title = text_of(step.get("name", step.get("id", text)))
                title = " ".join((filled(title, scope) or title).split())
                title = title if len(title) <= 60 else f"{title[:57]}…"
                source = f'{label}, step "{title}"' if title else label
                yield Step(run, source, folder, inner.names["env"])

    def _called(
        self,
        called: str,
        name: str,
        job: Mapping[str, Any],
        when: int,
        label: str,
        scope: Scope,
        depth: int,
    ) -> Iterator[Job]:
        """Yield the jobs of a workflow of this repository that a job calls, ranked by the caller's name."""
        path = called.removeprefix("./")
        if depth >= _MAX_CALLS or not _WORKFLOW.fullmatch(path):
            return
        document = mapping(self._read(path))
        call = mapping(mapping(document.get("on")).get("workflow_call"))
        inputs = _inputs(call.get("inputs"), mapping(job.get("with")), scope)
        for inner in self._jobs(document, when, f"{label}, job {name} → {path}", inputs, depth + 1):
            own, its = _by_name(name), inner.rank[2]
            by_name = own if its == 2 else max(own, its) if own >= _ASIDE else its
            yield replace(inner, rank=(*inner.rank[:2], by_name, *inner.rank[3:]))


def _with_env(scope: Scope, table: Any) -> Scope:
    return Scope({**scope.names, "env": {**scope.names["env"], **literal(table, scope)}}, "")


def _inputs(declared: Any, given: Mapping[str, Any], scope: Scope) -> dict[str, Any]:
    """Return the inputs of a called workflow or action."""
    found = {str(key): text_of(mapping(it).get("default")) for key, it in mapping(declared).items()}
    values = {str(key): filled(text_of(it), scope) for key, it in given.items()}
    return found | {key: UNKNOWN if value is None else value for key, value in values.items()}


def filled(text: str, scope: Scope) -> str | None:
    """Return a text with its expressions replaced; None: one of them needs a run of CI."""
    values: list[Any] = []

    def value(match: re.Match[str]) -> str:
        values.append(workflow_value(match[1], scope))
        return text_of(values[-1])

    found = re.sub(r"\$\{\{((?:[^}]|\}(?!\}))*+)\}\}", value, text)
    return None if any(it is UNKNOWN or isinstance(it, dict | list) for it in values) else found


def _filled_lines(text: str, scope: Scope) -> str | None:
    """Return a script with its expressions replaced. A line that needs a run of CI is left out, unless it
    is a part of a compound command."""
    whole = filled(text, scope)
    if whole is not None or re.search(r"(?m)^\s*(?:if|for|while|case)\b|<<|\\$", text):
        return whole
    lines = (filled(line, scope) for line in text.splitlines())
    return "\n".join(line for line in lines if line is not None)


def _holds(condition: Any, scope: Scope) -> bool:
    """Does a condition hold on a push, as far as is known?"""
    text = re.sub(r"^\s*\$\{\{|\}\}\s*$", "", text_of(condition)).strip()
    value = workflow_value(text, scope) if text else True
    return value is UNKNOWN or truth(value)


def literal(table: Any, scope: Scope) -> dict[str, str]:
    """Return the variables whose values are known from the file, and are no secrets."""
    found: dict[str, str] = {}
    for name, value in list(mapping(table).items())[:MAX_VARIABLES]:
        text = filled(value, scope) if isinstance(value, str) and "secrets." not in value else None
        is_variable = re.fullmatch(r"[A-Za-z_]\w*", str(name)) and name not in _COLOURS
        if text is not None and is_variable and not re.search(r"[$\0`]|<<", text):
            found[str(name)] = text
    return found


# -- services ----------------------------------------------------------------------------------------------

_SERVICES = {
    "postgres": "postgres|postgis|timescale|pgvector", "redis": "redis|valkey|keydb|dragonfly", "mysql": "mysql|percona",
    "mariadb": "mariadb", "mongo": "mongo", "rabbitmq": "rabbit", "elasticsearch": "elastic", "opensearch": "opensearch",
    "memcached": "memcache", "kafka": "kafka|redpanda", "zookeeper": "zookeeper", "minio": "minio", "ldap": "ldap",
    "localstack": "localstack", "mssql": "mssql|azure-sql-edge", "clickhouse": "clickhouse", "neo4j": "neo4j",
    "cassandra": "cassandra|scylla", "dynamodb": "dynamodb", "selenium": "selenium", "nats": r"\bnats\b",
    "consul": "consul", "etcd": "etcd", "httpbin": "httpbin",
}  # fmt: skip


def _known(text: str) -> list[str]:
    """Return the first service that a text names, if any."""
    found = (name for name, names in _SERVICES.items() if re.search(names, text, re.IGNORECASE))
    return [*itertools.islice(found, 1)]


def _images(images: Sequence[Any], scope: Scope) -> Iterator[str]:
    """Yield the usual name of what each image runs: that of the image itself if no other is known."""
    for image in images[:50]:
        table = mapping(image)
        text = filled(text_of(table.get("image") or table.get("name") or image), scope) or ""
        path = re.sub(r"[^\w./-]", "", re.sub(r":[^/:]*$", "", text[:500].partition("@")[0]))[-200:]
        plain = path.rpartition("/")[2][:60]
        yield from filter(None, [*_known(plain), *_known(path), plain][:1])


def _started(text: str) -> Iterator[str]:
    """Yield the services that a script starts."""
    starts = r"(?:systemctl\s+(?:re)?start|service|brew\s+services\s+start)\s+([\w@.-]+)|docker\s+run\s([^\n;|&]*)"
    for match in itertools.islice(re.finditer(starts, text), 20):
        words = (match[1] or match[2] or "").split()
        yield from [name for word in words for name in _known(word.partition(":")[0])][-1:]


# -- the others, put into GitHub's form --------------------------------------------------------------------


def _gitlab(document: Mapping[str, Any], read: Reader) -> dict[str, Any]:
    for include in items(document.get("include"))[:20]:
        local = include if isinstance(include, str) else mapping(include).get("local")
        if isinstance(local, str) and not local.startswith("http"):
            document = {**mapping(read(local.lstrip("/"))), **document}
    usual = {**document, **mapping(document.get("default"))}
    left, jobs = [_MAX_READ], {}
    for name, own in itertools.islice(document.items(), _MAX_READ):
        job = _extended(own, document, 0)
        if "script" not in job or str(name).startswith(".") or name == "default":
            continue
        before = job.get("before_script", usual.get("before_script"))
        lines = [*_lines(before, document, left), *_lines(job["script"], document, left)]
        variables = {**mapping(document.get("variables")), **job["variables"]}
        rows = items(mapping(job.get("parallel")).get("matrix"))[:1]
        variables |= {
            key: (items(it) or [it])[0] for row in rows for key, it in mapping(row).items()
        }
        rules = f"{job.get('rules') or ''}{job.get('only') or ''}"[:5_000]
        is_seldom = re.search(r"schedule|\btags\b|CI_COMMIT_TAG", rules)
        is_seldom = is_seldom and not re.search(r"merge_request|push|branches", rules)
        jobs[name] = {
            "name": job.get("stage"),
            "env": {key: mapping(it).get("value", it) for key, it in variables.items()},
            "services": job.get("services") or usual.get("services"),
            "steps": [{"run": "\n".join(lines), "name": ""}],
            "starts": _SELDOM if is_seldom else _ON_PUSH,
        }
    return jobs


def _extended(job: Any, document: Mapping[str, Any], depth: int) -> dict[str, Any]:
    """Return a job of GitLab with what it extends."""
    names = mapping(job).get("extends")
    found: dict[str, Any] = {"variables": {}}
    for name in (names if isinstance(names, list) else [names])[:5] if depth < _MAX_CALLS else ():
        if isinstance(name, str) and isinstance(document.get(name), dict):
            found |= _extended(document[name], document, depth + 1)
    variables = {**found["variables"], **mapping(mapping(job).get("variables"))}
    return {**found, **mapping(job), "variables": variables}


def _lines(value: Any, document: Mapping[str, Any], left: list[int], depth: int = 0) -> list[str]:
    """Return the lines of a script: a text, a list, or a ``!reference`` to another job's. ``left``: how
    many more may be read."""
    left[0] -= 1
    if left[0] < 0 or depth > _MAX_CALLS or isinstance(value, str):
        return [value] if isinstance(value, str) else []
    parts = items(value)[:MAX_STEPS]
    if depth and len(parts) == 2 and all(isinstance(it, str) for it in parts):
        if parts[1] in (other := mapping(document.get(parts[0]))):
            return _lines(other[parts[1]], document, left, depth + 1)
    return [line for it in parts for line in _lines(it, document, left, depth + 1)]


def _circle(document: Mapping[str, Any], _: Reader) -> dict[str, Any]:
    used: dict[str, tuple[int, dict[str, Any]]] = {}
    workflows = [it for it in mapping(document.get("workflows")).values() if isinstance(it, dict)]
    for workflow in workflows:
        is_seldom = "schedule" in str(workflow.get("triggers"))[:2000]
        for entry in items(workflow.get("jobs"))[:MAX_JOBS]:
            name, given = _only_entry(entry)
            matrix = mapping(mapping(given.get("matrix")).get("parameters"))
            given |= {
                key: min(it, key=partial(_cost, str(key)))
                for key, it in matrix.items()
                if items(it)
            }
            filters = str(mapping(given.get("filters")).get("branches"))[:500]
            is_unused = "ignore" in filters and "/.*/" in filters
            used.setdefault(name, (_SELDOM if is_seldom or is_unused else _ON_PUSH, given))
    jobs, left = {}, [_MAX_READ]
    for name, own in mapping(document.get("jobs")).items():
        if not isinstance(own, dict) or (workflows and name not in used):
            continue
        starts, given = used.get(str(name), (_ON_PUSH, {}))
        executor = own.get("executor")
        executor = text_of(mapping(executor).get("name") or executor)
        job = {**mapping(mapping(document.get("executors")).get(executor)), **own}
        values = _parameters(job, given)
        images = [mapping(it) for it in items(job.get("docker"))]
        env = {
            **_pairs(images[0].get("environment") if images else {}),
            **_pairs(job.get("environment")),
        }
        jobs[name] = {
            "env": {key: _parametrized(it, values) for key, it in env.items()},
            "runs-on": f"{executor} {'macos' * ('macos' in job)}",
            "services": [_parametrized(it.get("image"), values) for it in images[1:]],
            "defaults": {"run": {"working-directory": _own_folder(job, values)}},
            "steps": [*_circle_steps(job.get("steps"), document, values, 0, left)],
            "starts": starts,
        }
    return jobs


def _only_entry(entry: Any) -> tuple[str, dict[str, Any]]:
    """Return the name and the settings of an entry: ``name``, or ``{name: settings}``."""
    name, settings = next(iter(mapping(entry).items()), (text_of(entry), {}))
    return str(name), settings if isinstance(settings, dict) else {"command": settings}


def _parameters(owner: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, str]:
    declared = mapping(owner.get("parameters")).items()
    found = {str(key): given.get(key, mapping(it).get("default", "")) for key, it in declared}
    return {key: value for key, value in found.items() if isinstance(value, str)}


def _parametrized(text: Any, values: Mapping[str, str]) -> str:
    name = r"<<\s*(?:parameters|matrix)\.([\w-]+)\s*>>"
    return re.sub(name, lambda match: values.get(match[1], ""), text_of(text))


def _own_folder(table: Mapping[str, Any], values: Mapping[str, str]) -> str:
    """Return the folder of a job or step of CircleCI; empty for its usual one."""
    folder = _parametrized(table.get("working_directory"), values)
    return "" if folder.startswith(("~", "/")) else folder


def _pairs(table: Any) -> dict[str, Any]:
    """Return variables that a table or a list of tables has."""
    return {key: it for one in items(table) or [table] for key, it in mapping(one).items()}


def _circle_steps(
    steps: Any, document: Mapping[str, Any], values: Mapping[str, str], depth: int, left: list[int]
) -> Iterator[dict[str, Any]]:
    for step in items(steps)[:MAX_STEPS]:
        left[0] -= 1
        if left[0] < 0 or depth > _MAX_CALLS:
            return
        name, table = _only_entry(step)
        command = mapping(mapping(document.get("commands")).get(name))
        if name == "run":
            text = _parametrized(table.get("command"), values)
            if table.get("background") != "true" and table.get("when") != "on_fail" and text:
                env = {
                    key: _parametrized(it, values)
                    for key, it in _pairs(table.get("environment")).items()
                }
                title = table.get("name") or text
                yield {
                    "run": text,
                    "name": title,
                    "env": env,
                    "working-directory": _own_folder(table, values),
                }
        elif name in ("when", "unless"):
            yield from _circle_steps(table.get("steps"), document, values, depth + 1, left)
        elif command:
            given = {
                key: _parametrized(it, values) for key, it in _parameters(command, table).items()
            }
            yield from _circle_steps(command.get("steps"), document, given, depth + 1, left)


def _azure(document: Mapping[str, Any], _: Reader) -> dict[str, Any]:
    is_seldom = document.get("trigger") == "none" and document.get("pr") == "none"
    jobs = {}
    for stage in [it for it in items(document.get("stages")) if isinstance(it, dict)] or [document]:
        for job in [it for it in items(stage.get("jobs")) if isinstance(it, dict)] or [stage]:
            values: dict[str, str] = {}
            for owner in (document, stage, job):
                values |= _azure_variables(owner.get("variables"))
            rows = [*mapping(mapping(job.get("strategy")).get("matrix")).values()]
            values |= _azure_variables(min(rows, key=partial(_cost, "")) if rows else {})
            pool = mapping(job.get("pool") or stage.get("pool") or document.get("pool"))
            name = text_of(job.get("job") or job.get("deployment") or stage.get("stage")) or "steps"
            jobs[name if name not in jobs else f"{name} {len(jobs)}"] = {
                "name": job.get("displayName"),
                "env": values,
                "services": job.get("services"),
                "runs-on": _azure_filled(pool.get("vmImage"), values),
                "steps": [*_azure_steps(job.get("steps"), values)],
                "starts": _SELDOM if is_seldom else _ON_PUSH,
            }
    return jobs


def _azure_variables(value: Any) -> dict[str, str]:
    rows = [mapping(it) for it in items(value)]
    pairs = {text_of(row.get("name")): row.get("value") for row in rows} if rows else mapping(value)
    return {
        str(key): it for key, it in pairs.items() if key and isinstance(it, str) and "${{" not in it
    }


def _azure_filled(text: Any, values: Mapping[str, str]) -> str:
    roots = r"\$\((?:Build\.SourcesDirectory|System\.DefaultWorkingDirectory|Build\.Repository\.LocalPath)\)"
    text = re.sub(roots, "$PWD", text_of(text))
    return re.sub(r"\$\(([\w.]+)\)", lambda match: values.get(match[1], match[0]), text)


def _azure_steps(steps: Any, values: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for step in items(steps)[:MAX_STEPS]:
        table = {**mapping(mapping(step).get("inputs")), **mapping(step)}
        task = text_of(table.get("task")).partition("@")[0].lower()
        text = text_of(table.get("script") or table.get("bash"))
        if task in ("npm", "yarn"):
            given = table.get("customCommand") or table.get("arguments") or table.get("command")
            text = f"{task} {text_of(given)}"
        if text and not re.search(r"Windows|Darwin", text_of(table.get("condition"))):
            folder = table.get("workingDirectory") or table.get("workingDir")
            yield {
                "run": _azure_filled(text, values),
                "name": table.get("displayName") or text,
                "env": _azure_variables(table.get("env")),
                "working-directory": _azure_filled(folder, values),
            }


def _travis(document: Mapping[str, Any], _: Reader) -> dict[str, Any]:
    rows = mapping(document.get("jobs") or document.get("matrix")).get("include")
    rows = [mapping(it) for it in items(rows)[:MAX_JOBS] if mapping(it).get("script")]
    is_node = "".join(items(document.get("language"))[:1] or [text_of(document.get("language"))])
    jobs: dict[str, Any] = {}
    if document.get("script") or not rows:
        usual = {} if document.get("script") else {"script": "npm test" * (is_node == "node_js")}
        rows = [{**usual, "name": "tests"}, *rows]
    for number, row in enumerate(rows):
        job = {**document, **row}
        parts = [job.get(key) for key in ("before_install", "install", "before_script", "script")]
        lines = [line for part in parts for line in _lines(part, {}, [MAX_STEPS])]
        services = items(job.get("services")) or [job.get("services")]
        name = text_of(row.get("name") or row.get("stage")) or f"include {number}"
        jobs[name if name not in jobs else f"{name} {number}"] = {
            "env": {**_travis_env(document.get("env")), **_travis_env(row.get("env"))},
            "services": [it for it in services if it not in ("docker", "xvfb")],
            "runs-on": row.get("os"),
            "steps": [{"run": "\n".join(lines), "name": ""}],
        }
    return jobs


def _travis_env(value: Any) -> dict[str, str]:
    """Return the variables of a text, of a list's first one, or of ``global`` and the first job."""
    if isinstance(value, dict) and {"global", "matrix", "jobs"} & value.keys():
        rows = items(value.get("matrix") or value.get("jobs"))[:1]
        shared = [it for it in items(value.get("global")) if isinstance(it, str)]
        return _travis_env(" ".join(shared)) | _travis_env(value.get("global")) | _travis_env(rows)
    if isinstance(value, list):
        return _travis_env(value[0]) if value else {}
    if isinstance(value, dict):
        return {str(key): it for key, it in value.items() if isinstance(it, str)}
    pairs = re.findall(r"([A-Za-z_]\w*)=(\"[^\"]*\"|'[^']*'|\S*)", text_of(value)[:5_000])
    return {key: text.strip("\"'") for key, text in pairs}


#: Files of other systems than GitHub, and what puts their jobs into GitHub's form.
_OTHER_SYSTEMS: Mapping[str, Callable[[Mapping[str, Any], Reader], dict[str, Any]]] = {
    ".gitlab-ci.yml": _gitlab,
    ".circleci/config.yml": _circle,
    "azure-pipelines.yml": _azure,
    ".azure-pipelines.yml": _azure,
    ".travis.yml": _travis,
}


def mapping(value: Any) -> dict[str, Any]:
    """Return a table; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    """Return a list; an empty one for anything else."""
    return value if isinstance(value, list) else []
