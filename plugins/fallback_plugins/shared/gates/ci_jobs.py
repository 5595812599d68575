"""Reader of the jobs that a project's CI runs, for GitHub, GitLab, CircleCI, Azure and Travis.

A file has jobs, a job has steps or a script, a step has a text, variables and a folder; the systems differ
in names. From a matrix, one value is taken for each name: Linux before others, the newest release of Python
or Node that isn't a preview, otherwise the first. Each value that names a folder of the repository makes a
job; values that are words (``unit``, ``integration``) make parts of one job. A line that needs what only a
run of CI knows is left out; a condition that needs it counts as true. Secrets are never read.
"""

import itertools
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from fallback_plugins.shared.gates.expressions import (
    UNKNOWN,
    Scope,
    dig,
    expression_value,
    items,
    mapping,
    rows,
    text_of,
    truth,
    version_of,
)

MAX_CI_FILES = 120  # the largest monorepos have about 100 workflows
MAX_JOBS = 200  # of one file: large ones have about 60
MAX_STEPS = 200  # of one list: large jobs have about 40
MAX_AXES = 12  # names of a matrix: large ones have about 8
MAX_PLACES = 60  # folders that a matrix names: large monorepos have about 40 members in one
MAX_PARTS = 12  # of one job: large matrices of suites have about 10
MAX_COMBINATIONS = 256  # of a matrix, looked at to find one that isn't excluded
MAX_VARIABLES = 200  # of one table: a project sets some tens
_MAX_READ = 5_000  # jobs, steps and lines of a file and what it calls: large ones have about 500
MAX_READ_OF_ALL = 30_000  # of all files: those of a large monorepo have about 15,000
_MAX_VALUE = 300  # characters of a matrix's value that may be a command
_MAX_CALLS = 4  # workflows, actions and templates within each other: real chains have up to three

_Reader = Callable[[str], Any]
_Described = tuple[str, Any, int]


@dataclass(frozen=True)
class _JobStep:
    """One script of a job. ``source``: names its place, for people."""

    text: str
    source: str
    folder: str = "."
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """One job with one combination of its matrix. ``group``: names the whole job, of which this is another
    part if ``is_part``; ``rank``: the lower, the likelier the job runs the project's unit tests."""

    source: str
    group: str
    is_part: bool
    steps: tuple[_JobStep, ...]
    services: tuple[str, ...]
    rank: tuple[int, ...]

    @property
    def is_aside(self) -> bool:
        """Whether something other than a push starts the job, it is for another system or may fail, or its
        name says that it doesn't run the project's own tests."""
        return self.rank[0] > _ON_PUSH or self.rank[1] > 0 or self.rank[2] >= _ASIDE


def ci_jobs(paths: Sequence[str], read: _Reader) -> list[Job]:
    """Return the jobs of all CI files, the likeliest first; jobs that only a schedule or a release starts
    only if there are no others. ``paths``: all tracked files; ``read`` returns a YAML file's document."""
    manifests = ("package.json", "pyproject.toml", "setup.py", "setup.cfg")
    members = {posixpath.dirname(path) for path in paths if path.endswith(manifests)}
    members = {posixpath.basename(folder) for folder in members}
    folders = frozenset({*map(posixpath.dirname, paths), *members} - {""})
    jobs: list[Job] = []
    remaining = MAX_READ_OF_ALL
    files = sorted(path for path in paths if _WORKFLOW.fullmatch(path))[:MAX_CI_FILES]
    for path in (*files, *(path for path in _OTHER_SYSTEMS if path in paths)):
        file = _File(path, folders, read, min(remaining, _MAX_READ))
        remaining -= file.left
        file_jobs = [*itertools.islice(file.jobs(), MAX_JOBS)]
        remaining += max(0, file.left)
        if path == ".travis.yml" and jobs:  # a left-over of many projects
            file_jobs = [replace(job, rank=(job.rank[0], 1, *job.rank[2:])) for job in file_jobs]
        jobs += file_jobs
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
    r"(?i)integration|interop|external|aarch64|docker.?image|migration|e2e|\bload|end-to-end|smoke"
    r"|accept|browser|ui[-_ ]|perf|bench|nightly|canary|pre-?release|pypy|legacy|experimental"
    r"|downstream|upstream|fuzz|windows|macos|mac\b|win\b|bun\b|deno|alpine|cygwin|freebsd"
    r"|dev[-_ ]?deps|mobile|devbox|compat|sonar|lowest|mutation|min(?:imum)?[-_ ]?(?:dep|ver)|sdist"
    r"|dist\b|consumer|types?\b|typing|shared|workerd|coverage-win"
)  # fmt: skip
_NAMED_OTHER = re.compile(
    r"(?i)lint|format|style|docs?\b|deploy|release|publish|codeql|audit|security|label|changelog|mypy"
    r"|pyright|stale|type-?check|pre-commit|prettier|package\b|wheel|docker|image|preview|netlify"
    r"|storybook|scorecard"
)  # fmt: skip


def _by_name(*names: str) -> int:
    """Return a rank by names: 0 or 1 if they say that the job tests, 2 if they say nothing, 3 for tests of
    something else, 4 for a job that doesn't test."""
    text = _NAMED_CI.sub("ci", " ".join(names))
    if _NAMED_LATER.search(text):
        return _ASIDE
    if _NAMED_OTHER.search(text) and "test" not in text.lower():
        return _ASIDE + 1
    if any(_NAMED_BEST.search(name) for name in names):
        return 0
    return 1 if _NAMED_TEST.search(text) else 2


def _starts(events: Any) -> int:
    names = set(map(str, events)) if isinstance(events, dict | list) else {events}
    push = mapping(mapping(events).get("push"))
    names -= {"push"} if "tags" in push and "branches" not in push else set()
    if {"push", "pull_request", "merge_group", None} & names:
        return _ON_PUSH
    is_by_hand = {"workflow_dispatch", "pull_request_target", "workflow_run"} & names
    return _BY_HAND if is_by_hand and not {"schedule", "push"} & names else _SELDOM


# -- a matrix ----------------------------------------------------------------------------------------------

_ROWS = ("include", "exclude")
_OTHER_SYSTEM = re.compile(r"(?i)win|mac|osx|freebsd|arm")
_PREVIEW = re.compile(
    r"(?i)pypy|graal|nightly|canary|experimental|preview|dev\b|rc\d*\b|alpha|beta|-t\b|\d+\.\d+t\b"
    r"|main\b|master\b|min|lint|quality|docs|style|mypy|typing|coverage|format"
)  # fmt: skip


def _cost(name: str, value: Any) -> tuple[Any, ...]:
    """Return a sort key for a name's values, or for rows: the least is taken."""
    row = mapping(value)
    text = " ".join(map(str, row.values())) or text_of(value)
    runtimes = [
        text_of(value) for key, value in row.items() if re.search(r"py|node|version", str(key))
    ]
    if not row and re.search(r"(?i)py|node|version|ver$", name):
        runtimes = [text]
    newest = tuple(-part for part in next(filter(None, map(version_of, runtimes)), ()))
    return bool(_OTHER_SYSTEM.search(text)), bool(_PREVIEW.search(text)), newest or (0,)


def _matrix(matrix: Mapping[str, Any]) -> dict[str, Any]:
    """Return one combination of a matrix, chosen as the module's docstring says."""
    axes = {str(name): matrix[name] for name in [*matrix][:MAX_AXES] if name not in _ROWS}
    values = {name: items(axes[name])[:MAX_JOBS] for name in axes if items(axes[name])}
    lists = {name: sorted(values[name], key=partial(_cost, name))[:20] for name in values}
    chosen = {name: UNKNOWN for name in axes if name not in lists}
    included = rows(matrix.get("include"))[:MAX_COMBINATIONS]
    if not axes and included:
        return dict(min(included, key=partial(_cost, "")))
    if lists:
        product = itertools.islice(itertools.product(*lists.values()), MAX_COMBINATIONS)
        combinations = [dict(zip(lists, values, strict=True)) for values in product]
        excluded = rows(matrix.get("exclude"))[:MAX_COMBINATIONS]
        allowed = (
            combination
            for combination in combinations
            if not any(row.items() <= combination.items() for row in excluded)
        )
        chosen |= next(allowed, combinations[0])
    for row in included:
        if all(row[name] == chosen[name] for name in row.keys() & chosen.keys()):
            chosen = {**row, **chosen}
    return chosen


#: Values and names of a matrix that are other settings of the same tests, not other tests.
_SETTING = re.compile(
    r"(?i)(?<![a-z])(?:linux|ubuntu|debian|alpine|win|windows|mac|macos|osx|freebsd|arm|sqlite|chrome|chromium|firefox"
    r"|webkit|safari|edge|bun|deno|pypy|graal|nightly|canary|flaky|experimental|preview|dev|alpha|beta|main|master|min"
    r"|minimum|lowest|lint|quality|docs|style|mypy|typing|coverage|format|true|false|yes|no|on|off|none|null|default)"
    r"(?![a-z])"
)
_SETTINGS = re.compile(
    r"(?i)^(?:os|platform|arch|runs?[-_]?on|runner|image|database|db|browser)$|version|backend|mode$"
)


def _is_part(name: str, value: Any) -> bool:
    """Return whether a matrix's value may name a part of the tests, or be a command for one."""
    if not isinstance(value, str) or len(value) > _MAX_VALUE or _SETTINGS.search(name):
        return False
    plain = value.replace("e2e", "end-to-end")
    words = plain.split()
    is_version = any(map(str.isdigit, plain if len(words) < 2 else words))
    return bool(words) and not (is_version or _known(value) or _SETTING.search(value))


def _axes(matrix: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values for name, values in matrix.items() if items(values) and name not in _ROWS}


def _parts(matrix: Mapping[str, Any], best: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield combinations that differ from the chosen one only in values that may name a part of the
    tests."""
    axes = _axes(matrix)
    for name, values in [*axes.items()][:MAX_AXES]:
        part_values = [value for value in items(values)[: 4 * MAX_PARTS] if _is_part(name, value)]
        if best.get(name) in part_values:
            for value in dict.fromkeys(part_values):
                yield {**best, name: value}
    for row in rows(matrix.get("include"))[:MAX_COMBINATIONS]:
        whole = {**best, **row} if axes else row
        changed_keys = [
            key for key in whole.keys() | best.keys() if whole.get(key) != best.get(key)
        ]
        if all(
            _is_part(key, whole.get(key)) and _is_part(key, best.get(key)) for key in changed_keys
        ):
            yield whole


def _matrices(job: Mapping[str, Any], folders: frozenset[str]) -> Iterator[tuple[str, Any, bool]]:
    """Yield (label, combination, is_part). First the chosen combination, with an empty label; then one for
    each further value that names a folder of the repository, as each member of a monorepo is tested; then
    the other parts of the job, with ``is_part``."""
    matrix = mapping(job.get("strategy")).get("matrix", {})
    if not isinstance(matrix, dict):
        yield "", UNKNOWN, False
        return
    if matrix and all(isinstance(row, dict) for row in matrix.values()):  # Azure's rows have names
        matrix = {"include": [*matrix.values()]}
    best = _matrix(matrix)
    yield "", best, False
    included = rows(matrix.get("include"))
    axes = _axes(matrix)
    for name in axes or (included[0] if included else ()):
        values = map(text_of, axes.get(name) or [row.get(name) for row in included])
        member_folders = [
            value for value in dict.fromkeys(values) if posixpath.normpath(value) in folders
        ]
        for folder in member_folders[:MAX_PLACES] if len(member_folders) > 1 else ():
            if folder != best.get(name):
                folder_rows = {"include": [row for row in included if row.get(name) == folder]}
                chosen = _matrix({**matrix, name: [folder]} if axes else folder_rows)
                yield f" ({folder})", chosen, False
    for part in itertools.islice(
        (part for part in _parts(matrix, best) if part != best), MAX_PARTS
    ):
        changed_values = [text_of(value) for key, value in part.items() if value != best.get(key)]
        if not any(posixpath.normpath(value) in folders for value in changed_values):
            yield f" ({', '.join(changed_values)})", part, True


# -- jobs and steps ----------------------------------------------------------------------------------------

_WORKFLOW = re.compile(r"\.github/workflows/[^/]+\.ya?ml")
_SCRIPTS = ("before_install", "install", "before_script", "script")
_TEXTS = ("run", "script", "bash", "command")
_NO_SHELL = re.compile(r"python|pwsh|powershell|cmd|perl")
_FOLDERS = ("working-directory", "working_directory", "workingDirectory", "workingDir")
_GITHUB = {"event_name": "push", "workspace": "$PWD", "ref_type": "branch", "actor": ""} | dict.fromkeys(
    ("event", "repository", "ref", "ref_name", "sha", "job", "run_id", "token", "repository_owner"), UNKNOWN
)  # fmt: skip
_AZURE_FOLDERS = ("Build.SourcesDirectory", "System.DefaultWorkingDirectory")
#: Names that expressions can use in a run on Linux, as far as their values are known.
_NAMES = {
    "env": {},
    "github": _GITHUB,
    "runner": {"os": "Linux", "arch": "X64"},
    "job": {"status": "success"},
    "variables": dict.fromkeys(_AZURE_FOLDERS, "$PWD"),
}
#: Variables that only colour the output, which is read here.
_COLOURS = {"FORCE_COLOR", "PY_COLORS", "CLICOLOR_FORCE", "MYPY_FORCE_COLOR", "COLOR", "TERM"}
#: ``${{ expression }}``, ``<< parameters.name >>`` of CircleCI, ``$(name)`` of Azure.
_PLACEHOLDER = re.compile(
    r"\$\{\{((?:[^}$]|\$(?!\{\{)|\}(?!\})){0,2000}+)\}\}|<<\s*((?:parameters|matrix)\.[\w-]+)\s*>>|\$\(([\w.]+)\)"
)


@dataclass(frozen=True)
class _At:
    """A position in a CI file. ``label``: names it, for people; ``group``: the same without parts of a job;
    ``usual``: default settings of steps; ``depth``: the number of calls around it."""

    label: str
    group: str
    scope: Scope
    usual: Mapping[str, Any] = field(default_factory=dict)
    depth: int = 0
    is_part: bool = False

    def within(self, owner: Mapping[str, Any], **names: Any) -> "_At":
        """Return this position with an owner's variables, and with further names."""
        scope = Scope({**self.scope.names, **names}, "")
        return replace(self, scope=_with_env(scope, owner))


class _File:
    """The jobs of one file. ``left``: how many more jobs, steps and lines may be read."""

    def __init__(self, path: str, folders: frozenset[str], read: _Reader, left: int) -> None:
        self._path, self._places, self._read, self.left = path, folders, read, left
        self._document = mapping(read(path))
        self._is_github = bool(_WORKFLOW.fullmatch(path))

    def jobs(self) -> Iterator[Job]:
        is_top = self._is_github or "gitlab" in self._path
        scope = _with_env(Scope({**_NAMES, "inputs": {}}, ""), self._document if is_top else {})
        usual = mapping(dig(self._document, "defaults", "run"))
        described = _OTHER_SYSTEMS.get(self._path, _File._of_github)(self)
        yield from self._jobs(described, _At(self._path, self._path, scope, usual))

    # One reader for each system. Each yields (name, job, rank of what starts it).

    def _of_github(self) -> Iterator[_Described]:
        events = self._document.get("on", self._document.get("true"))
        if not isinstance(events, dict | list) or [*events] != ["workflow_call"]:
            for name, job in mapping(self._document.get("jobs")).items():
                yield str(name), job, _starts(events)

    def _of_gitlab(self) -> Iterator[_Described]:
        usual = {**self._document, **mapping(self._document.get("default"))}
        usual = {key: usual[key] for key in ("services", "before_script") if key in usual}
        for name, entry in self._document.items():
            job = self._extended(entry, 0)
            if "script" in job and not str(name).startswith(".") and name != "default":
                rules = f"{job.get('rules')}{job.get('only')}"[:5_000]
                is_pushed = re.search(r"merge_request|push|branches", rules)
                is_seldom = not is_pushed and re.search(r"schedule|\btags\b|CI_COMMIT_TAG", rules)
                row = next(iter(rows(dig(job, "parallel", "matrix"))), {})
                row = {
                    key: value if isinstance(value, list) else [value] for key, value in row.items()
                }
                job = {**usual, "strategy": {"matrix": row}, **job}
                yield str(name), job, _SELDOM if is_seldom else _ON_PUSH

    def _extended(self, job: Any, depth: int) -> dict[str, Any]:
        inherited: dict[str, Any] = {"variables": {}}
        bases = mapping(job).get("extends")
        self.left -= 1
        for name in (items(bases) or [bases])[:5] if depth < _MAX_CALLS and self.left > 0 else ():
            inherited |= self._extended(self._document.get(text_of(name)), depth + 1)
        variables = {**inherited["variables"], **mapping(dig(job, "variables"))}
        return {**inherited, **mapping(job), "variables": variables}

    def _of_circle(self) -> Iterator[_Described]:
        used: dict[str, tuple[int, dict[str, Any]]] = {}
        workflows = rows(self._document.get("workflows"))
        for workflow in workflows:
            for name, settings in map(_entry, items(workflow.get("jobs"))[:MAX_JOBS]):
                filters = str(dig(settings, "filters", "branches"))[:500]
                is_seldom = "schedule" in str(workflow.get("triggers"))[:2_000]
                is_seldom = is_seldom or ("ignore" in filters and "/.*/" in filters)
                used.setdefault(name, (_SELDOM if is_seldom else _ON_PUSH, settings))
        for name, definition in mapping(self._document.get("jobs")).items():
            if not workflows or name in used:
                when, settings = used.get(str(name), (_ON_PUSH, {}))
                executor = text_of(
                    dig(definition, "executor", "name") or dig(definition, "executor")
                )
                job = {**mapping(dig(self._document, "executors", executor)), **mapping(definition)}
                images = items(job.get("docker"))
                owners = [*images[:1], job]
                job["environment"] = [
                    table for owner in owners for table in _tables(dig(owner, "environment"))
                ]
                job |= {"services": images[1:], "with": settings, "defaults": {"run": job}}
                job["strategy"] = {"matrix": dig(settings, "matrix", "parameters") or {}}
                yield str(name), {**job, "runs-on": executor + "mac" * ("macos" in job)}, when

    def _of_azure(self) -> Iterator[_Described]:
        top = self._document
        is_seldom = top.get("trigger") == "none" and top.get("pr") == "none"
        for stage in rows(top.get("stages")) or [top]:
            for job in rows(stage.get("jobs")) or [stage]:
                owners = (top, stage, job)
                variables = [table for owner in owners for table in _tables(owner.get("variables"))]
                image = next(
                    (vm_image for owner in owners if (vm_image := dig(owner, "pool", "vmImage"))),
                    "",
                )
                name = job.get("job") or job.get("deployment") or stage.get("stage") or "steps"
                job = {**job, "variables": variables, "runs-on": image}
                yield text_of(name), job, _SELDOM if is_seldom else _ON_PUSH

    def _of_travis(self) -> Iterator[_Described]:
        top = self._document
        included = rows(dig(top, "jobs", "include") or dig(top, "matrix", "include"))
        included = [row for row in included[:MAX_JOBS] if row.get("script")]
        if top.get("script") or not included:
            is_node = "node_js" in (top.get("language"), *items(top.get("language")))
            script = "npm test" if is_node and not top.get("script") else top.get("script")
            included = [{"name": "test", "script": script}, *included]
        for number, row in enumerate(included):
            env = [*_travis_env(top.get("env")), *_travis_env(row.get("env"))]
            name = text_of(row.get("name") or row.get("stage")) or f"include {number}"
            job = {**top, **row, "env": env, "strategy": {}, "runs-on": row.get("os")}
            yield name, job, _ON_PUSH

    # What all systems share.

    def _jobs(self, described: Iterable[_Described], at: _At) -> Iterator[Job]:
        for name, described_job, when in itertools.islice(described, MAX_JOBS):
            job = mapping(described_job)
            if self.left < 0:
                return
            for suffix, matrix, is_part in _matrices(job, self._places):
                self.left -= 1 + is_part
                inner = at.within({}, matrix=matrix)
                group = f"{at.group}, job {name}{'' if is_part else suffix}"
                inner = replace(inner, label=f"{at.label}, job {name}{suffix}", group=group)
                inner = replace(inner, is_part=at.is_part or is_part)
                if self.left < 0 or not _holds(dig(job, "if"), inner.scope):
                    continue
                if isinstance(job.get("uses"), str):
                    yield from self._called(job, name, inner, when)
                    continue
                if not self._is_github:  # a matrix gives parameters, or variables
                    inputs = _inputs(job.get("parameters"), mapping(job.get("with")), inner.scope)
                    is_env = "circle" not in self._path
                    variables = {"variables": matrix} if is_env else {}
                    inner = inner.within(variables, parameters={**inputs, **mapping(matrix)})
                yield self._job(name, job, inner, when)

    def _job(self, name: str, job: Mapping[str, Any], at: _At, when: int) -> Job:
        at = at.within(job)
        usual = {**at.usual, **mapping(dig(job, "defaults", "run"))}
        images = job.get("services")
        images = [*images.values()] if isinstance(images, dict) else items(images) or [images]
        services = [*_images(images, at.scope)]
        script = [line for key in _SCRIPTS for line in self._lines(job.get(key), 0)]
        steps = items(job.get("steps")) or [{"script": "\n".join(script), "name": ""}]
        job_steps = self._steps(steps, replace(at, usual=usual), services)
        scripts = tuple(itertools.islice(job_steps, MAX_STEPS))
        title = text_of(job.get("displayName") or job.get("stage") or job.get("name"))
        by_name, by_file = _by_name(name, "" if "${{" in title else title), 1
        if self._is_github:
            by_file = _by_name(posixpath.basename(self._path).partition(".")[0])
            by_name = max(by_name, _ASIDE if by_file >= _ASIDE and not at.depth else 0)
        runs_on = _filled(text_of(job.get("runs-on")), at.scope) or ""
        is_other = re.search(r"(?i)win|mac|osx", runs_on) or job.get("continue-on-error") == "true"
        rank = (when, int(bool(is_other)), by_name, len(services) > 0, by_file)
        return Job(at.label, at.group, at.is_part, scripts, tuple(dict.fromkeys(services)), rank)

    def _lines(self, value: Any, depth: int) -> Iterator[str]:
        """Yield the lines of a script: a text, a list, or a ``!reference`` of GitLab to another job's."""
        self.left -= 1
        if isinstance(value, str):
            yield value
        parts = items(value)[:MAX_STEPS] if depth < _MAX_CALLS and self.left > 0 else []
        is_reference = depth and len(parts) == 2 and all(isinstance(part, str) for part in parts)
        referenced = dig(self._document, *parts) if is_reference else None
        for part in [referenced] if referenced else parts:
            yield from self._lines(part, depth + 1)

    def _steps(self, described: Any, at: _At, services: list[str]) -> Iterator[_JobStep]:
        """Yield the scripts of steps, and of this repository's own actions and commands; add the services
        that they start to ``services``."""
        for name, settings in map(_entry, items(described)[:MAX_STEPS]):
            self.left -= 1
            arguments = mapping(settings.get("with"))
            step = {**mapping(settings.get("inputs")), **settings}
            step = {
                **{key: arguments[key] for key in ("run", "command") if key in arguments},
                **step,
            }
            action, task = text_of(step.get("uses")), text_of(step.get("task")).lower()
            text = next((text_of(step[key]) for key in _TEXTS if step.get(key)), "")
            if task.startswith(("npm@", "yarn@")):
                npm_arguments = step.get("customCommand") or step.get("arguments") or text
                text = f"{task.partition('@')[0]} {text_of(npm_arguments)}"
            services += [*_known(action.partition("@")[0]), *_started(text)]
            is_lenient = "true" in (step.get("continue-on-error"), step.get("background"))
            holds = _holds(step.get("if") or step.get("condition"), at.scope)
            if self.left < 0 or is_lenient or not holds or step.get("when") == "on_fail":
                continue
            inner = at.within(step)
            command = self._callee(name, action)
            steps = dig(command, "runs", "steps") or command.get("steps")
            steps = step.get("steps") if name in ("when", "unless") else steps
            if steps and at.depth < _MAX_CALLS:
                declared = command.get("inputs") or command.get("parameters")
                inputs = _inputs(declared, arguments or settings, at.scope)
                inner = inner.within({}, inputs=inputs, parameters=inputs) if command else inner
                inner = replace(inner, depth=at.depth + 1, usual={} if action else at.usual)
                yield from self._steps(steps, inner, services)
                continue
            settings = {**at.usual, **step}
            working_dir = next(
                (text_of(settings[key]) for key in _FOLDERS if settings.get(key)), "."
            )
            working_dir, run = (
                _filled(working_dir, at.scope) or "",
                _filled_lines(text, inner.scope),
            )
            if run and working_dir and not _NO_SHELL.search(text_of(settings.get("shell"))):
                title = text_of(step.get("displayName", step.get("name", step.get("id", text))))
                title = " ".join((_filled(title, at.scope) or title).split())
                title = title if len(title) <= 60 else f"{title[:57]}…"
                source = f'{at.label}, step "{title}"' if title else at.label
                folder = "." if working_dir.startswith("~") else working_dir
                yield _JobStep(run, source, folder, inner.scope.names["env"])

    def _callee(self, name: str, action: str) -> dict[str, Any]:
        """Return an action of this repository, or a command of the file; empty if none is called."""
        if not action.startswith("./"):
            return mapping(dig(self._document, "commands", name))
        paths = (f"{posixpath.normpath(action)}/action.{end}" for end in ("yml", "yaml"))
        return next(filter(None, (mapping(self._read(path)) for path in paths)), {})

    def _called(self, job: Mapping[str, Any], name: str, at: _At, when: int) -> Iterator[Job]:
        """Yield the jobs of a workflow of this repository that a job calls, ranked by the caller's name."""
        path = text_of(job.get("uses")).removeprefix("./")
        if at.depth < _MAX_CALLS and _WORKFLOW.fullmatch(path):
            document = mapping(self._read(path))
            declared = dig(document, "on", "workflow_call", "inputs")
            inputs = _inputs(declared, mapping(job.get("with")), at.scope)
            usual = mapping(dig(document, "defaults", "run"))
            inner = at.within(document, inputs=inputs)
            inner = replace(inner, label=f"{at.label} → {path}", group=f"{at.group} → {path}")
            inner = replace(inner, usual=usual, depth=at.depth + 1)
            jobs = [(str(key), job, when) for key, job in mapping(document.get("jobs")).items()]
            for called in self._jobs(jobs, inner):
                caller_rank, called_rank = _by_name(name), called.rank[2]
                by_name = (
                    caller_rank
                    if called_rank == 2
                    else max(caller_rank, called_rank)
                    if caller_rank >= _ASIDE
                    else called_rank
                )
                yield replace(called, rank=(*called.rank[:2], by_name, *called.rank[3:]))


_OTHER_SYSTEMS: Mapping[str, Callable[[_File], Iterator[_Described]]] = {
    ".gitlab-ci.yml": _File._of_gitlab,
    ".circleci/config.yml": _File._of_circle,
    "azure-pipelines.yml": _File._of_azure,
    ".azure-pipelines.yml": _File._of_azure,
    ".travis.yml": _File._of_travis,
}


def _entry(entry: Any) -> tuple[str, dict[str, Any]]:
    """Return the name and the settings of a step or job; CircleCI writes ``name`` or ``{name:
    settings}``."""
    if isinstance(entry, dict) and len(entry) != 1:
        return "", entry
    name, settings = next(iter(mapping(entry).items()), (text_of(entry), {}))
    return str(name), settings if isinstance(settings, dict) else mapping(entry)


def _tables(value: Any) -> list[dict[str, Any]]:
    """Return variables as tables, from a table, a list of tables, or Azure's list of names and values."""
    tables = [mapping(entry) for entry in items(value) or [value] if "group" not in mapping(entry)]
    is_pair = {"name", "value"}.issuperset
    return [
        {text_of(table["name"]): table.get("value")}
        if "name" in table and is_pair(table)
        else table
        for table in tables
    ]


def _with_env(scope: Scope, owner: Mapping[str, Any]) -> Scope:
    """Return a scope with an owner's variables whose values are known and aren't secrets."""
    env, variables = dict(scope.names["env"]), dict(scope.names["variables"])
    tables = [
        table for key in ("env", "environment", "variables") for table in _tables(owner.get(key))
    ]
    for name, value in [pair for table in tables for pair in table.items()][:MAX_VARIABLES]:
        value = mapping(value).get("value", value)
        is_known = isinstance(value, str) and "secrets." not in value and name != "secure"
        text = _filled(value, scope) if is_known else None
        if text is not None and not re.search(r"[$\0`]|<<", text):
            variables[str(name)] = text
            if re.fullmatch(r"[A-Za-z_]\w*", str(name)) and name not in _COLOURS:
                env[str(name)] = text
    return Scope({**scope.names, "env": env, "variables": variables}, "")


def _travis_env(value: Any) -> list[dict[str, str]]:
    """Return the variables of a text, of a list's first entry, or of ``global`` and the first job."""
    if isinstance(value, str):
        pairs = re.findall(r"\b([A-Za-z_]\w*)=(\"[^\"]*\"|'[^']*'|\S*)", value[:5_000])
        return [{key: text.strip("\"'") for key, text in pairs}]
    if {"global", "matrix", "jobs"} & mapping(value).keys():
        parts = [*items(value.get("global")), value.get("matrix") or value.get("jobs")]
        return [table for part in parts for table in _travis_env(part)]
    return _travis_env(value[0]) if items(value) else [mapping(value)]


def _inputs(declared: Any, arguments: Mapping[str, Any], scope: Scope) -> dict[str, Any]:
    """Return the inputs of a called workflow, action or command."""
    defaults = {
        str(key): text_of(mapping(declaration).get("default"))
        for key, declaration in mapping(declared).items()
    }
    values = {
        str(key): _filled(text_of(text), scope)
        for key, text in arguments.items()
        if isinstance(text, str)
    }
    return defaults | {key: UNKNOWN if value is None else value for key, value in values.items()}


def _filled(text: str, scope: Scope) -> str | None:
    """Return a text with its placeholders replaced; None if one of them needs a run of CI."""
    values: list[Any] = []

    def value(match: re.Match[str]) -> str:
        expression, parameter, variable = match.groups()
        if variable:
            return text_of(scope.names["variables"].get(variable, match[0]))
        values.append(expression_value(expression or parameter or "", scope))
        return text_of(values[-1])

    filled = _PLACEHOLDER.sub(value, text)
    return (
        None if any(item is UNKNOWN or isinstance(item, dict | list) for item in values) else filled
    )


def _filled_lines(text: str, scope: Scope) -> str | None:
    """Return a script with its expressions replaced. A line that needs a run of CI is left out; None if the
    script has such a line and a compound command."""
    whole = _filled(text, scope)
    if whole is not None or re.search(r"(?m)^\s*(?:if|for|while|case)\b|<<|\\$", text):
        return whole
    lines = (_filled(line, scope) for line in text.splitlines())
    return "\n".join(line for line in lines if line is not None)


def _holds(condition: Any, scope: Scope) -> bool:
    """Return whether a condition holds on a push to Linux, or may hold."""
    text = re.sub(r"^\s*\$\{\{|\}\}\s*$", "", text_of(condition)).strip()
    value = expression_value(text, scope) if text else True
    return not re.search(r"Windows_NT|Darwin", text) and (value is UNKNOWN or truth(value))


# -- services ----------------------------------------------------------------------------------------------

_SERVICES = {
    "postgres": "postgres|postgis|timescale|pgvector", "redis": "redis|valkey|keydb|dragonfly",
    "mysql": "mysql|percona", "mariadb": "mariadb", "mongo": "mongo", "rabbitmq": "rabbit",
    "kafka": "kafka|redpanda", "elasticsearch": "elastic", "opensearch": "opensearch",
    "memcached": "memcache", "zookeeper": "zookeeper", "minio": "minio", "ldap": "ldap",
    "localstack": "localstack", "mssql": "mssql|azure-sql", "etcd": "etcd", "clickhouse": "clickhouse",
    "cassandra": "cassandra|scylla", "dynamodb": "dynamodb", "selenium": "selenium", "nats": r"\bnats\b",
    "httpbin": "httpbin",
}  # fmt: skip


_STARTS = re.compile(
    r"(?:systemctl\s+(?:re)?start|service|brew\s+services\s+start)\s+([\w@.-]+)|docker\s+run\s([^\n;|&]*)"
)  # fmt: skip


def _known(text: str) -> list[str]:
    """Return the first service that a text names, if any."""
    services = (
        service for service, names in _SERVICES.items() if text and re.search(names, text.lower())
    )
    return [*itertools.islice(services, 1)]


def _images(images: Sequence[Any], scope: Scope) -> Iterator[str]:
    """Yield the usual name of the service that each image runs; the image's own name if none is known."""
    for image in images[:50]:
        table = mapping(image)
        text = _filled(text_of(table.get("image") or table.get("name") or image), scope) or ""
        path = re.sub(r"[^\w./-]", "", re.sub(r":[^/:]*$", "", text[:500].partition("@")[0]))[-200:]
        plain = path.rpartition("/")[2][:60]
        if plain and plain not in ("docker", "xvfb"):
            yield [*_known(plain), *_known(path), plain][0]


def _started(text: str) -> Iterator[str]:
    for match in itertools.islice(_STARTS.finditer(text), 20):
        words = (match[1] or match[2] or "").split()
        yield from [service for word in words for service in _known(word.partition(":")[0])][-1:]
