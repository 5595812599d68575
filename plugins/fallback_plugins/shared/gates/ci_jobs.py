"""What a project's CI runs: the jobs of GitHub, GitLab, CircleCI, Azure and Travis, read in one way.

A file has jobs, a job has steps or a script, a step has a text, variables and a folder; the systems differ in
names. Of a matrix, one value is taken for each name: Linux before others, the newest release of Python or Node
that is no preview, otherwise the first. Each value that names a folder of the repository makes a job. A line
that needs what only a run of CI knows is left out; a condition that needs it holds. Secrets are never read.
"""

import itertools
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from fallback_plugins.shared.gates.expressions import UNKNOWN, Scope, expression_value
from fallback_plugins.shared.gates.expressions import items, mapping, text_of, truth, version_of

MAX_CI_FILES = 120  # the largest monorepos have about 100 workflows
MAX_JOBS = 200  # of one file: large ones have about 60
MAX_STEPS = 200  # of one list: large jobs have about 40
MAX_AXES = 12  # names of a matrix: large ones have about 8
MAX_PLACES = 60  # folders that a matrix names: large monorepos have about 40 members in one
MAX_COMBINATIONS = 256  # of a matrix, looked at to find one that isn't excluded
MAX_VARIABLES = 200  # of one table: a project sets some tens
_MAX_READ = (
    5_000  # jobs, steps and lines of a file, with those that it calls: large files have about 500
)
_MAX_CALLS = 4  # workflows, actions and templates within each other: real chains have up to three

Reader = Callable[[str], Any]


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
    manifests = {
        it for it in paths if it.endswith(("package.json", ".toml", "setup.py", "setup.cfg"))
    }
    members = {posixpath.basename(posixpath.dirname(it)) for it in manifests}
    places = frozenset({*map(posixpath.dirname, paths), *members} - {""})
    jobs: list[Job] = []
    for path in sorted(path for path in paths if _WORKFLOW.fullmatch(path))[:MAX_CI_FILES]:
        jobs += itertools.islice(_File(path, places, read).jobs(), MAX_JOBS)
    for path in _OTHER_SYSTEMS:
        found = itertools.islice(_File(path, places, read).jobs(), MAX_JOBS if path in paths else 0)
        is_left_over = path == ".travis.yml" and jobs
        jobs += [
            replace(it, rank=(it.rank[0], 1, *it.rank[2:])) if is_left_over else it for it in found
        ]
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
    r"(?i)integration|interop|external|aarch64|docker.?image|migration|e2e|\bload|end-to-end|smoke|accept|browser"
    r"|ui[-_ ]|perf|bench|nightly|canary|prerelease|pre-release|pypy|legacy|experimental|downstream|upstream|fuzz"
    r"|windows|macos|mac\b|win\b|bun\b|deno|alpine|cygwin|freebsd|dev[-_ ]?deps|mobile|devbox|compat|sonar|lowest"
    r"|mutation|min(?:imum)?[-_ ]?(?:dep|ver)|sdist|dist\b|consumer|types?\b|typing|shared|workerd|coverage-win"
)  # fmt: skip
_NAMED_OTHER = re.compile(
    r"(?i)lint|format|style|docs?\b|deploy|release|publish|codeql|audit|security|label|changelog|mypy|pyright|stale"
    r"|type-?check|pre-commit|prettier|package\b|wheel|docker|image|preview|netlify|storybook|scorecard"
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
    push = mapping(mapping(events).get("push"))
    names -= {"push"} if "tags" in push and "branches" not in push else set()
    if {"push", "pull_request", "merge_group", None} & names:
        return _ON_PUSH
    is_by_hand = {"workflow_dispatch", "pull_request_target", "workflow_run"} & names
    return _BY_HAND if is_by_hand and not {"schedule", "push"} & names else _SELDOM


# -- a matrix ----------------------------------------------------------------------------------------------

_OTHER_SYSTEM = re.compile(r"(?i)win|mac|osx|freebsd|arm")
_PREVIEW = re.compile(
    r"(?i)pypy|graal|nightly|canary|experimental|preview|dev\b|rc\d*\b|alpha|beta|-t\b|\d+\.\d+t\b|main\b|master\b|min"
    r"|lint|quality|docs|style|mypy|typing|coverage|format"
)  # fmt: skip


def _cost(name: str, value: Any) -> tuple[Any, ...]:
    """Return what orders the values of a name, or rows: the least is taken."""
    row = mapping(value)
    text = " ".join(map(str, row.values())) or text_of(value)
    runtimes = [text_of(it) for key, it in row.items() if re.search(r"py|node|version", str(key))]
    if not row and re.search(r"(?i)py|node|version|ver$", name):
        runtimes = [text]
    newest = tuple(-part for part in next(filter(None, map(version_of, runtimes)), ()))
    return bool(_OTHER_SYSTEM.search(text)), bool(_PREVIEW.search(text)), newest or (0,)


def _matrix(matrix: Mapping[str, Any]) -> dict[str, Any]:
    """Return one combination of a matrix, as the module says."""
    axes = {str(it): matrix[it] for it in [*matrix][:MAX_AXES] if it not in ("include", "exclude")}
    lists = {it: sorted(axes[it], key=partial(_cost, it))[:20] for it in axes if items(axes[it])}
    chosen = {name: UNKNOWN for name in axes if name not in lists}
    rows = [mapping(it) for it in items(matrix.get("include"))]
    if not axes and rows:
        return dict(min(rows, key=partial(_cost, "")))
    if lists:
        product = itertools.islice(itertools.product(*lists.values()), MAX_COMBINATIONS)
        combinations = [dict(zip(lists, values, strict=True)) for values in product]
        excluded = [it for it in map(mapping, items(matrix.get("exclude"))) if it]
        kept = (it for it in combinations if not any(no.items() <= it.items() for no in excluded))
        chosen |= next(kept, combinations[0])
    for row in rows:
        if all(row[name] == chosen[name] for name in row.keys() & chosen.keys()):
            chosen = {**row, **chosen}
    return chosen


def _matrices(job: Mapping[str, Any], places: frozenset[str]) -> Iterator[tuple[str, Any]]:
    """Yield the chosen combination, and one for each further value that names a folder of the repository:
    each member of a monorepo is tested. Each has a label, which is empty for the first."""
    matrix = mapping(job.get("strategy")).get("matrix", {})
    if not isinstance(matrix, dict):
        yield "", UNKNOWN
        return
    if matrix and all(isinstance(it, dict) for it in matrix.values()):  # Azure's rows have names
        matrix = {"include": [*matrix.values()]}
    best = _matrix(matrix)
    yield "", best
    rows = [mapping(it) for it in items(matrix.get("include"))]
    lists = {
        name: it for name, it in matrix.items() if items(it) and name not in ("include", "exclude")
    }
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


# -- jobs and steps ----------------------------------------------------------------------------------------

_WORKFLOW = re.compile(r"\.github/workflows/[^/]+\.ya?ml")
_OTHER_SYSTEMS = (
    ".gitlab-ci.yml", ".circleci/config.yml", "azure-pipelines.yml", ".azure-pipelines.yml", ".travis.yml"
)  # fmt: skip
_SCRIPT_KEYS = ("before_install", "install", "before_script", "script")
_GITHUB = {"event_name": "push", "workspace": "$PWD", "ref_type": "branch", "actor": ""} | dict.fromkeys(
    ("event", "repository", "ref", "ref_name", "sha", "job", "run_id", "token", "repository_owner"), UNKNOWN
)  # fmt: skip
_AZURE = dict.fromkeys(
    ("Build.SourcesDirectory", "System.DefaultWorkingDirectory", "Build.Repository.LocalPath"),
    "$PWD",
)
#: Variables that only colour the output, which is read here.
_COLOURS = {"FORCE_COLOR", "PY_COLORS", "CLICOLOR_FORCE", "MYPY_FORCE_COLOR", "COLOR", "TERM"}
#: ``${{ expression }}``, ``<< parameters.name >>`` of CircleCI, ``$(name)`` of Azure.
_PLACEHOLDER = re.compile(
    r"\$\{\{((?:[^}]|\}(?!\}))*+)\}\}|<<\s*((?:parameters|matrix)\.[\w-]+)\s*>>|\$\(([\w.]+)\)"
)
_Described = tuple[str, dict[str, Any], int]


class _File:
    """The jobs of one file. ``_left``: how many more things may be looked at."""

    def __init__(self, path: str, places: frozenset[str], read: Reader) -> None:
        self._path, self._places, self._read, self._left = path, places, read, _MAX_READ
        self._document = mapping(read(path))
        self._is_github = bool(_WORKFLOW.fullmatch(path))

    def jobs(self) -> Iterator[Job]:
        """Yield each job that can be read."""
        read = {
            ".gitlab-ci.yml": self._of_gitlab, ".circleci/config.yml": self._of_circle, ".travis.yml": self._of_travis
        }.get(self._path, self._of_azure)  # fmt: skip
        jobs = self._of_github(self._document) if self._is_github else read()
        yield from self._jobs(jobs, self._document, self._path, {}, 0)

    def _of_github(self, document: Mapping[str, Any]) -> Iterator[_Described]:
        events = document.get("on", document.get("true"))
        is_called = isinstance(events, dict | list) and [*events] == ["workflow_call"]
        for name, job in mapping(document.get("jobs")).items():
            if not is_called or document is not self._document:
                yield str(name), mapping(job), _starts(events)

    def _of_gitlab(self) -> Iterator[_Described]:
        usual = {**self._document, **mapping(self._document.get("default"))}
        for name, own in self._document.items():
            job = self._extended(own, 0)
            if "script" in job and not str(name).startswith(".") and name != "default":
                rules = f"{job.get('rules')}{job.get('only')}"[:5_000]
                is_seldom = re.search(r"schedule|\btags\b|CI_COMMIT_TAG", rules)
                when = (
                    _ON_PUSH
                    if re.search(r"merge_request|push|branches", rules) or not is_seldom
                    else _SELDOM
                )
                rows = items(mapping(job.get("parallel")).get("matrix"))[:1]
                shared = {key: usual[key] for key in ("services", "before_script") if key in usual}
                yield (
                    str(name),
                    {**shared, "strategy": {"matrix": mapping([*rows, 0][0])}, **job},
                    when,
                )

    def _extended(self, job: Any, depth: int) -> dict[str, Any]:
        """Return a job of GitLab with what it extends."""
        found: dict[str, Any] = {}
        bases = mapping(job).get("extends")
        for name in (items(bases) or [bases])[:5] if depth < _MAX_CALLS else ():
            found |= self._extended(self._document.get(text_of(name)), depth + 1)
        variables = {**mapping(found.get("variables")), **mapping(mapping(job).get("variables"))}
        return {**found, **mapping(job), "variables": variables} if isinstance(job, dict) else found

    def _of_circle(self) -> Iterator[_Described]:
        used: dict[str, tuple[int, dict[str, Any]]] = {}
        workflows = [
            it for it in map(mapping, mapping(self._document.get("workflows")).values()) if it
        ]
        for workflow in workflows:
            for name, given in map(_entry, items(workflow.get("jobs"))[:MAX_JOBS]):
                filters = str(mapping(given.get("filters")).get("branches"))[:500]
                is_seldom = "schedule" in str(workflow.get("triggers"))[:2_000]
                is_seldom = is_seldom or ("ignore" in filters and "/.*/" in filters)
                used.setdefault(name, (_SELDOM if is_seldom else _ON_PUSH, given))
        for name, own in mapping(self._document.get("jobs")).items():
            if not workflows or name in used:
                when, given = used.get(str(name), (_ON_PUSH, {}))
                executor = mapping(own).get("executor")
                executor = text_of(mapping(executor).get("name") or executor)
                job = {
                    **mapping(mapping(self._document.get("executors")).get(executor)),
                    **mapping(own),
                }
                images = items(job.get("docker"))
                env = [*map(mapping, images[:1]), job]
                job["environment"] = [it for one in env for it in _tables(one.get("environment"))]
                matrix = {"matrix": mapping(given.get("matrix")).get("parameters")}
                runs_on = f"{executor} {'macos' * ('macos' in job)}"
                job |= {
                    "services": images[1:],
                    "with": given,
                    "runs-on": runs_on,
                    "strategy": matrix,
                }
                yield str(name), job, when

    def _of_azure(self) -> Iterator[_Described]:
        shared, top = ("pool", "variables"), self._document
        is_seldom = top.get("trigger") == "none" and top.get("pr") == "none"
        for stage in [it for it in map(mapping, items(top.get("stages"))) if it] or [top]:
            for own in [it for it in map(mapping, items(stage.get("jobs"))) if it] or [stage]:
                job = {
                    key: it.get(key) for key in shared for it in (top, stage, own) if it.get(key)
                } | own
                tables = [it for one in (top, stage, own) for it in _tables(one.get("variables"))]
                image = mapping(job.get("pool")).get("vmImage")
                name = own.get("job") or own.get("deployment") or stage.get("stage") or "steps"
                job |= {"variables": tables, "runs-on": image}
                yield text_of(name), job, _SELDOM if is_seldom else _ON_PUSH

    def _of_travis(self) -> Iterator[_Described]:
        top = self._document
        rows = items(mapping(top.get("jobs") or top.get("matrix")).get("include"))
        rows = [mapping(it) for it in rows[:MAX_JOBS] if mapping(it).get("script")]
        is_node = "node_js" in (top.get("language"), *items(top.get("language")))
        if top.get("script") or not rows:
            rows = [
                {
                    "name": "test",
                    **({} if top.get("script") or not is_node else {"script": "npm test"}),
                },
                *rows,
            ]
        for number, row in enumerate(rows):
            env = [*_travis_env(top.get("env")), *_travis_env(row.get("env"))]
            name = text_of(row.get("name") or row.get("stage")) or f"include {number}"
            yield (
                name,
                {**top, **row, "env": env, "strategy": {}, "runs-on": row.get("os")},
                _ON_PUSH,
            )

    def _jobs(
        self,
        described: Iterator[_Described],
        document: Mapping[str, Any],
        label: str,
        inputs: Any,
        depth: int,
    ) -> Iterator[Job]:
        names = {"inputs": inputs, "parameters": inputs, "env": {}, "job": {"status": "success"}}
        names |= {"github": _GITHUB, "runner": {"os": "Linux", "arch": "X64"}, "variables": _AZURE}
        top = _with_env(Scope(names, ""), document if self._is_github or "gitlab" in label else {})
        for name, job, when in itertools.islice(described, MAX_JOBS):
            for suffix, matrix in _matrices(job, self._places):
                self._left -= 1
                scope = Scope({**top.names, "matrix": matrix}, "")
                if self._left < 0 or not _holds(job.get("if"), scope):
                    continue
                source = f"{label}, job {name}{suffix}"
                if isinstance(job.get("uses"), str) and self._is_github:
                    yield from self._called(job, name, source, scope, depth, when)
                    continue
                if not self._is_github:
                    given = {
                        **_inputs(job.get("parameters"), mapping(job.get("with")), scope),
                        **mapping(matrix),
                    }
                    scope = Scope({**scope.names, "parameters": given}, "")
                    is_variable = "circle" not in self._path
                    scope = _with_env(scope, {"variables": mapping(matrix)} if is_variable else {})
                yield self._job(source, job, document, scope, depth, when)

    def _job(
        self,
        source: str,
        job: Mapping[str, Any],
        document: Any,
        scope: Scope,
        depth: int,
        when: int,
    ) -> Job:
        name = source.rpartition(", job ")[2]
        scope = _with_env(scope, job)
        usual = mapping(mapping(document.get("defaults")).get("run")) if self._is_github else {}
        usual = {**usual, **mapping(mapping(job.get("defaults")).get("run"))}
        usual |= {key: job[key] for key in ("working_directory",) if key in job}
        described = job.get("services")
        images = (
            [*described.values()]
            if isinstance(described, dict)
            else items(described) or [described]
        )
        services = [*_images(images, scope)]
        script = [it for key in _SCRIPT_KEYS for it in self._lines(job.get(key), 0)]
        steps = items(job.get("steps")) or [{"script": "\n".join(script), "name": ""}]
        found = tuple(
            itertools.islice(self._steps(steps, scope, usual, source, services, depth), MAX_STEPS)
        )
        title = text_of(job.get("displayName") or job.get("stage") or job.get("name"))
        by_name = _by_name(name, "" if "${{" in title else title)
        file_rank = (
            _by_name(posixpath.basename(self._path).partition(".")[0]) if self._is_github else 1
        )
        if file_rank >= _ASIDE and not depth:
            by_name = max(by_name, _ASIDE)
        runs_on = _filled(text_of(job.get("runs-on")), scope) or ""
        is_other = re.search(r"(?i)win|mac|osx", runs_on) or job.get("continue-on-error") == "true"
        rank = (when, int(bool(is_other)), by_name, len(services) > 0, file_rank)
        return Job(source, found, tuple(dict.fromkeys(services)), rank)

    def _lines(self, value: Any, depth: int) -> Iterator[str]:
        """Yield the lines of a script: a text, a list, or a ``!reference`` of GitLab to another job's."""
        self._left -= 1
        if isinstance(value, str):
            yield value
        parts = items(value)[:MAX_STEPS] if depth < _MAX_CALLS and self._left > 0 else []
        other = (
            mapping(self._document.get(parts[0]))
            if depth and len(parts) == 2 and parts[0] in self._document
            else {}
        )
        for part in [other[parts[1]]] if other and parts[1] in other else parts:
            yield from self._lines(part, depth + 1)

    def _steps(
        self,
        described: Any,
        scope: Scope,
        usual: Mapping[str, Any],
        label: str,
        services: list[str],
        depth: int,
    ) -> Iterator[Step]:
        """Yield the scripts of steps, and of this repository's own actions and commands; add the services
        that they start."""
        for name, settings in map(_entry, items(described)[:MAX_STEPS]):
            self._left -= 1
            given = mapping(settings.get("with"))
            given = {it: given[it] for it in ("run", "command") if it in given}
            step = {**mapping(settings.get("inputs")), **given, **settings}
            action, task = (
                text_of(step.get("uses")),
                text_of(step.get("task")).partition("@")[0].lower(),
            )
            text = next(
                (text_of(step[it]) for it in ("run", "script", "bash", "command") if step.get(it)),
                "",
            )
            if task in ("npm", "yarn"):
                text = (
                    f"{task} {text_of(step.get('customCommand') or step.get('arguments') or text)}"
                )
            services += [*_known(action.partition("@")[0]), *_started(text)]
            condition = step.get("if") or step.get("condition")
            is_lenient = "true" in (step.get("continue-on-error"), step.get("background"))
            if (
                self._left < 0
                or not _holds(condition, scope)
                or is_lenient
                or step.get("when") == "on_fail"
            ):
                continue
            inner = _with_env(scope, step)
            command = mapping(mapping(self._document.get("commands")).get(name))
            if action.startswith("./"):
                folder = posixpath.normpath(action)
                found = (mapping(self._read(f"{folder}/action.{end}")) for end in ("yml", "yaml"))
                command = next(filter(None, found), {})
            steps = mapping(command.get("runs")).get("steps") or command.get("steps")
            if name in ("when", "unless"):
                steps = step.get("steps")
            if steps and depth < _MAX_CALLS:
                given = mapping(settings.get("with")) if action else settings
                inputs = _inputs(command.get("inputs") or command.get("parameters"), given, scope)
                own = (
                    Scope({**inner.names, "inputs": inputs, "parameters": inputs}, "")
                    if command
                    else inner
                )
                yield from self._steps(
                    steps, own, {} if action else usual, label, services, depth + 1
                )
                continue
            keys = ("working-directory", "working_directory", "workingDirectory", "workingDir")
            place = next((it for one in (step, usual) for key in keys if (it := one.get(key))), ".")
            place = _filled(text_of(place), scope) or ""
            run = _filled_lines(text, inner)
            shell = text_of(step.get("shell") or usual.get("shell"))
            if run and place and not re.search(r"python|pwsh|powershell|cmd|perl", shell):
                title = text_of(step.get("displayName", step.get("name", step.get("id", text))))
                title = " ".join((_filled(title, scope) or title).split())
                title = title if len(title) <= 60 else f"{title[:57]}…"
                folder = "." if place.startswith("~") else place
                yield Step(
                    run, f'{label}, step "{title}"' if title else label, folder, inner.names["env"]
                )

    def _called(
        self, job: Mapping[str, Any], name: str, label: str, scope: Scope, depth: int, when: int
    ) -> Iterator[Job]:
        """Yield the jobs of a workflow of this repository that a job calls, ranked by the caller's name."""
        path = text_of(job.get("uses")).removeprefix("./")
        if depth < _MAX_CALLS and _WORKFLOW.fullmatch(path):
            document = mapping(self._read(path))
            declared = mapping(mapping(document.get("on")).get("workflow_call")).get("inputs")
            inputs = _inputs(declared, mapping(job.get("with")), scope)
            jobs = ((it, inner, when) for it, inner, _ in self._of_github(document))
            for called in self._jobs(jobs, document, f"{label} → {path}", inputs, depth + 1):
                own, its = _by_name(name), called.rank[2]
                by_name = own if its == 2 else max(own, its) if own >= _ASIDE else its
                yield replace(called, rank=(*called.rank[:2], by_name, *called.rank[3:]))


def _entry(entry: Any) -> tuple[str, dict[str, Any]]:
    """Return the name and the settings of a step or job: of CircleCI ``name`` or ``{name: settings}``."""
    if isinstance(entry, dict) and len(entry) != 1:
        return "", entry
    name, settings = next(iter(mapping(entry).items()), (text_of(entry), {}))
    if isinstance(settings, dict):
        return str(name), settings if name != "steps" else {"steps": settings}
    return str(name), mapping(entry)


def _tables(value: Any) -> list[dict[str, Any]]:
    """Return variables as tables: of a table, a list of tables, or Azure's list of names and values."""
    tables = [mapping(it) for it in items(value) or [value]]
    return [{text_of(it["name"]): it.get("value")} if "name" in it else it for it in tables]


def _with_env(scope: Scope, owner: Mapping[str, Any]) -> Scope:
    """Return a scope with the variables of a file, job or step whose values are known, and are no secrets."""
    env, variables = dict(scope.names["env"]), dict(scope.names["variables"])
    tables = [it for key in ("env", "environment", "variables") for it in _tables(owner.get(key))]
    for name, value in [pair for it in tables for pair in it.items()][:MAX_VARIABLES]:
        value = mapping(value).get("value", value)
        text = _filled(value, scope) if isinstance(value, str) and "secrets." not in value else None
        if text is not None and not re.search(r"[$\0`]|<<", text):
            variables[str(name)] = text
            if re.fullmatch(r"[A-Za-z_]\w*", str(name)) and name not in _COLOURS:
                env[str(name)] = text
    return Scope({**scope.names, "env": env, "variables": variables}, "")


def _travis_env(value: Any) -> list[dict[str, str]]:
    """Return the variables of a text, of a list's first one, or of ``global`` and the first job."""
    if isinstance(value, str):
        pairs = re.findall(r"([A-Za-z_]\w*)=(\"[^\"]*\"|'[^']*'|\S*)", value[:5_000])
        return [{key: text.strip("\"'") for key, text in pairs}]
    if {"global", "matrix", "jobs"} & mapping(value).keys():
        parts = [*items(value.get("global")), value.get("matrix") or value.get("jobs")]
        return [it for part in parts for it in _travis_env(part)]
    return _travis_env(value[0]) if items(value) else [mapping(value)]


def _inputs(declared: Any, given: Mapping[str, Any], scope: Scope) -> dict[str, Any]:
    """Return the inputs of a called workflow, action or command."""
    found = {str(key): text_of(mapping(it).get("default")) for key, it in mapping(declared).items()}
    values = {
        str(key): _filled(text_of(it), scope) for key, it in given.items() if isinstance(it, str)
    }
    return found | {key: UNKNOWN if value is None else value for key, value in values.items()}


def _filled(text: str, scope: Scope) -> str | None:
    """Return a text with its placeholders replaced; None: one of them needs a run of CI."""
    values: list[Any] = []

    def value(match: re.Match[str]) -> str:
        expression, parameter, variable = match.groups()
        if variable:
            return text_of(scope.names["variables"].get(variable, match[0]))
        values.append(expression_value(expression or parameter or "", scope))
        return text_of(values[-1])

    found = _PLACEHOLDER.sub(value, text)
    return None if any(it is UNKNOWN or isinstance(it, dict | list) for it in values) else found


def _filled_lines(text: str, scope: Scope) -> str | None:
    """Return a script with its expressions replaced. A line that needs a run of CI is left out, unless it
    is a part of a compound command."""
    whole = _filled(text, scope)
    if whole is not None or re.search(r"(?m)^\s*(?:if|for|while|case)\b|<<|\\$", text):
        return whole
    lines = (_filled(line, scope) for line in text.splitlines())
    return "\n".join(line for line in lines if line is not None)


def _holds(condition: Any, scope: Scope) -> bool:
    """Does a condition hold on a push to Linux, as far as is known?"""
    text = re.sub(r"^\s*\$\{\{|\}\}\s*$", "", text_of(condition)).strip()
    value = expression_value(text, scope) if text else True
    return not re.search(r"Windows_NT|Darwin", text) and (value is UNKNOWN or truth(value))


# -- services ----------------------------------------------------------------------------------------------

_SERVICES = {
    "postgres": "postgres|postgis|timescale|pgvector", "redis": "redis|valkey|keydb|dragonfly", "mysql": "mysql|percona",
    "mariadb": "mariadb", "mongo": "mongo", "rabbitmq": "rabbit", "elasticsearch": "elastic", "opensearch": "opensearch",
    "memcached": "memcache", "kafka": "kafka|redpanda", "zookeeper": "zookeeper", "minio": "minio", "ldap": "ldap",
    "localstack": "localstack", "mssql": "mssql|azure-sql", "clickhouse": "clickhouse", "cassandra": "cassandra|scylla",
    "dynamodb": "dynamodb", "selenium": "selenium", "nats": r"\bnats\b", "etcd": "etcd", "httpbin": "httpbin",
}  # fmt: skip


def _known(text: str) -> list[str]:
    """Return the first service that a text names, if any."""
    return [it for it, names in _SERVICES.items() if re.search(names, text, re.IGNORECASE)][:1]


def _images(images: Sequence[Any], scope: Scope) -> Iterator[str]:
    """Yield the usual name of what each image runs: that of the image itself if no other is known."""
    for image in images[:50]:
        table = mapping(image)
        text = _filled(text_of(table.get("image") or table.get("name") or image), scope) or ""
        path = re.sub(r"[^\w./-]", "", re.sub(r":[^/:]*$", "", text[:500].partition("@")[0]))[-200:]
        plain = path.rpartition("/")[2][:60]
        if plain and plain not in ("docker", "xvfb"):
            yield [*_known(plain), *_known(path), plain][0]


def _started(text: str) -> Iterator[str]:
    """Yield the services that a script starts."""
    starts = r"(?:systemctl\s+(?:re)?start|service|brew\s+services\s+start)\s+([\w@.-]+)|docker\s+run\s([^\n;|&]*)"
    for match in itertools.islice(re.finditer(starts, text), 20):
        words = (match[1] or match[2] or "").split()
        yield from [it for word in words for it in _known(word.partition(":")[0])][-1:]
