"""Judge of ``make no-false-fixed``: is what a tool says of a repository true?

The witness is the real client: each install command of a case is run in a copy of the repository, in a
fresh environment, before and after the tool. What it installed is read from disk. Versions and declared
ranges are compared by the few functions below. Nothing here is shared with the product.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from tests.campaigns.no_false_fixed.case import (
    Case,
    Ended,
    Install,
    Judgement,
    Outcome,
    run_command,
)

#: Ends that claim a repaired repository.
_FIXED = ("fixed", "patched")


def judge(
    case: Case, base: Path, after: Path, ended: Ended, environ: Mapping[str, str]
) -> Judgement:
    """Judge a tool's end. ``base``: the repository before; ``after``: as the tool left it.

    ``environ`` is the whole environment of the clients. Return the gravest outcome, the sentence for it,
    and every other problem.
    """
    problems = [*_Bench(case, base, after, ended, environ).problems()]
    if not problems:
        return Judgement(Outcome.AS_EXPECTED)
    order = list(Outcome)
    (outcome, detail), *others = sorted(problems, key=lambda it: order.index(it[0]))
    return Judgement(outcome, detail, tuple(others))


def check_case(case: Case, base: Path, environ: Mapping[str, str]) -> list[str]:
    """Return what is wrong with a case at its base commit; empty if it is sound.

    If the expected end is "fixed" or "not affected", every install command must work, and an affected
    version must be installed (or be all that a declaration admits) if and only if the end is "fixed".
    """
    if case.expected.end not in ("fixed", "not_affected"):
        return []
    problems, witness = [], _Witness(case, base, environ)
    for run in witness.runs:
        if run.failure:
            problems.append(f"`{run.install.command}` fails at the base commit: {run.failure}")
    affected = [*witness.affected()]
    if case.expected.end == "fixed" and not affected and not [*witness.only_affected()]:
        problems.append(f"nothing affected is installed or declared: {witness.summary}")
    if case.expected.end == "not_affected":
        problems += affected
    problems += [
        f"{path} does not hold {text!r} at the base commit"
        for path, texts in case.expected.keeps.items()
        for text in texts
        if text not in _text(base / path)
    ]
    return problems


@dataclass(frozen=True)
class _Bench:
    case: Case
    base: Path
    after: Path
    ended: Ended
    environ: Mapping[str, str]

    def problems(self) -> Iterator[tuple[Outcome, str]]:
        expected, end = self.case.expected, self.ended.end
        said = "fixed" if end in _FIXED else end
        if said == "fixed":
            yield from self._false_fixed()
            yield from self._unrequested_majors()
        elif said == "not_affected":
            yield from self._false_unaffected()
        if said not in expected.ends:
            outcome = Outcome.UNKNOWN if said == "unknown" else Outcome.OTHER_END
            yield outcome, f"ended {end}, expected {expected.end}: {expected.note}"
        elif said == "fixed":
            yield from self._not_held()
        if said in expected.ends:
            for path in expected.mentions:
                if path not in self.ended.output:
                    yield Outcome.OTHER_END, f"the output does not name {path}"
        yield from self._wrong_places(said)
        yield from self._lost_bytes()

    # --- the claims -------------------------------------------------------------------------------

    def _false_fixed(self) -> Iterator[tuple[Outcome, str]]:
        failed_before = {run.install for run in self.before.runs if run.failure}
        for run in self.now.runs:
            if run.failure and run.install not in failed_before:
                sentence = f"`{run.install.command}` worked before and fails now: {run.failure}"
                yield Outcome.FALSE_FIXED, sentence
        for sentence in self.now.affected():
            yield Outcome.FALSE_FIXED, sentence
        for path, line, sentence in self.now.only_affected():
            # An engineer who wrote the case may say that this very declaration survives.
            if not any(line in text for text in self.case.expected.keeps.get(path, ())):
                yield Outcome.FALSE_FIXED, sentence

    def _false_unaffected(self) -> Iterator[tuple[Outcome, str]]:
        for sentence in self.now.affected():
            yield Outcome.FALSE_UNAFFECTED, sentence
        if "not_affected" not in self.case.expected.ends:
            for _, _, sentence in self.now.only_affected():
                yield Outcome.FALSE_UNAFFECTED, sentence

    def _unrequested_majors(self) -> Iterator[tuple[Outcome, str]]:
        """A direct dependency's new major version, which the case does not expect."""
        direct = {one.name for one in _declarations(self.base, self.case)}
        for old, new in zip(self.before.runs, self.now.runs, strict=True):
            for name in sorted(direct & old.installed.keys() & new.installed.keys()):
                known = {self._line(version) for version in old.installed[name]}
                for version in sorted(new.installed[name]):
                    stated = self.case.expected.installs.get(name, ())
                    if self._line(version) not in known and version not in stated:
                        was = ", ".join(sorted(old.installed[name]))
                        yield Outcome.UNREQUESTED_MAJOR, f"{name} went from {was} to {version}"

    def _line(self, version: str) -> tuple[int, ...]:
        """The numbers whose change may break users: npm's are up to the first that is not zero."""
        numbers = [int(number) for number in re.findall(r"\d+", version)[:3]]
        if self.case.ecosystem == "npm":
            zeros = [*takewhile(lambda number: number == 0, numbers)]
            return tuple(numbers[: len(zeros) + 1])
        return tuple(numbers[:1])

    def _not_held(self) -> Iterator[tuple[Outcome, str]]:
        for path, texts in self.case.expected.holds.items():
            for text in texts:
                if text not in _text(self.after / path):
                    yield Outcome.WRONG_PLACE, f"{path} does not hold {text!r}"
        for name, versions in self.case.expected.installs.items():
            found = self.now.versions(self._key(name))
            if found != {*versions}:
                listed = ", ".join(sorted(found)) or "no version"
                sentence = f"{name}: {listed} installed, expected {', '.join(versions)}"
                yield Outcome.WRONG_PLACE, sentence

    # --- the files --------------------------------------------------------------------------------

    def _wrong_places(self, said: str) -> Iterator[tuple[Outcome, str]]:
        if said != "fixed":
            for path in self.changed:
                yield Outcome.WRONG_PLACE, f"{path} changed, though the end is {self.ended.end}"
        elif globs := self.case.expected.changed:
            for path in self.changed:
                if not any(fnmatchcase(path, glob) for glob in globs):
                    yield Outcome.WRONG_PLACE, f"{path} changed, only {', '.join(globs)} may"

    def _lost_bytes(self) -> Iterator[tuple[Outcome, str]]:
        for path, texts in self.case.expected.keeps.items():
            for text in texts:
                if text not in _text(self.after / path):
                    yield Outcome.LOST_BYTES, f"{path} lost {text!r}"
        for path in self.changed:
            old, new = self.base / path, self.after / path
            if not old.is_file() or not new.is_file():
                continue
            was, now = _form(old), _form(new)
            for what in was.keys() & now.keys():
                if was[what] != now[what]:
                    sentence = f"{path}: {what} was {was[what]!r} and is {now[what]!r}"
                    yield Outcome.LOST_BYTES, sentence

    @cached_property
    def changed(self) -> list[str]:
        """Paths whose content differs; what git ignores is left out."""
        paths = {*_paths(self.base), *_paths(self.after)}
        return sorted(
            path for path in paths if _content(self.base / path) != _content(self.after / path)
        )

    # --- the witness ------------------------------------------------------------------------------

    @cached_property
    def before(self) -> "_Witness":
        return _witness_of_base(self.case, self.base, self.environ)

    @cached_property
    def now(self) -> "_Witness":
        return _Witness(self.case, self.after, self.environ) if self.changed else self.before

    def _key(self, name: str) -> str:
        return _key(self.case, name)


# --- what install commands install ----------------------------------------------------------------


@dataclass(frozen=True)
class _Run:
    """What one install command installed: name → versions. ``failure``: the end of its output."""

    install: Install
    installed: Mapping[str, frozenset[str]]
    failure: str


@dataclass(frozen=True)
class _Witness:
    """What the install commands and the declarations of one state of a repository say."""

    case: Case
    root: Path
    environ: Mapping[str, str]

    @cached_property
    def runs(self) -> tuple[_Run, ...]:
        return tuple(
            _installed(self.case, self.root, one, self.environ) for one in self.case.installs
        )

    def versions(self, name: str) -> set[str]:
        """Return the versions that any command installed."""
        return {version for run in self.runs for version in run.installed.get(name, ())}

    def affected(self) -> Iterator[str]:
        """Yield a sentence for each affected version that a command installs."""
        for run in self.runs:
            for name, versions in run.installed.items():
                for version in sorted(versions):
                    if is_affected(self.case, name, version):
                        yield f"`{run.install.command}` installs {name} {version}, which is affected"

    def only_affected(self) -> Iterator[tuple[str, str, str]]:
        """Yield (path, text, sentence) for each declaration that admits affected versions only."""
        for one in _declarations(self.root, self.case):
            admitted = [
                version for version in _published(self.case, one.name) if one.admits(version)
            ]
            if admitted and all(is_affected(self.case, one.name, it) for it in admitted):
                listed = ", ".join(admitted)
                yield one.path, one.text, f"{one.path}: {one.text!r} admits only {listed}"

    @property
    def summary(self) -> str:
        """The commands with what they installed."""
        return "; ".join(
            f"`{run.install.command}`: "
            + ", ".join(
                f"{name} {'/'.join(sorted(it))}" for name, it in sorted(run.installed.items())
            )
            for run in self.runs
        )


_BASES: dict[tuple[str, Path], _Witness] = {}


def _witness_of_base(case: Case, base: Path, environ: Mapping[str, str]) -> _Witness:
    """Install the base once for all tools that are judged on it."""
    return _BASES.setdefault((case.digest, base), _Witness(case, base, environ))


def _installed(case: Case, root: Path, install: Install, environ: Mapping[str, str]) -> _Run:
    """Run an install command in a copy of the committed and new files, and read what it installed."""
    with TemporaryDirectory(prefix="judge-", ignore_cleanup_errors=True) as name:
        copy, env = Path(name).resolve() / "repository", Path(name).resolve() / "env"
        shutil.copytree(root, copy, symlinks=True, ignore=shutil.ignore_patterns(".venv"))
        if case.ecosystem == "npm":
            _remove_uncommitted_modules(copy)
            run = run_command(install.command, copy / install.folder, environ)
            installed = [*_npm_packages(copy)]
        else:
            run = run_command(install.command, copy / install.folder, _python_env(env, environ))
            installed = [*_python_packages(env, copy / install.folder / ".venv")]
    failure = " ".join(f"{run.stdout} {run.stderr}".split())[-500:] if run.returncode else ""
    found: dict[str, set[str]] = {}
    for package, version in installed:
        found.setdefault(_key(case, package), set()).add(version)
    return _Run(install, {key: frozenset(it) for key, it in found.items()}, failure)


def _python_env(env: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Make a fresh environment, and return the variables that every client needs to install into it."""
    venv.create(env, symlinks=True, with_pip=False)
    pip, python = env / "bin" / "pip", env / "bin" / "python"
    pip.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pip --python "{python}" "$@"\n')
    pip.chmod(0o755)
    return {
        **environ,
        "PATH": f"{pip.parent}{os.pathsep}{environ.get('PATH', '')}",
        "VIRTUAL_ENV": str(env),
        "UV_PROJECT_ENVIRONMENT": str(env),
    }


def _python_packages(*envs: Path) -> Iterator[tuple[str, str]]:
    for env in envs:
        for metadata in env.glob("lib/python*/site-packages/*.dist-info/METADATA"):
            head = metadata.read_text(encoding="utf-8", errors="replace").split("\n\n")[0]
            fields = dict(line.split(": ", 1) for line in head.splitlines() if ": " in line)
            yield fields["Name"], fields["Version"]


def _remove_uncommitted_modules(copy: Path) -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=copy, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    if not any("node_modules" in Path(path).parts for path in tracked):
        for modules in [*copy.rglob("node_modules")]:
            shutil.rmtree(modules, ignore_errors=True)


def _npm_packages(copy: Path) -> Iterator[tuple[str, str]]:
    """Yield each package of any node_modules folder, nested and bundled copies and links too."""
    for modules in copy.rglob("node_modules"):
        for manifest in (*modules.glob("*/package.json"), *modules.glob("@*/*/package.json")):
            try:
                document = json.loads(manifest.read_bytes())
                yield document["name"], document["version"]
            except (OSError, ValueError, KeyError, TypeError):
                continue


# --- affected versions ----------------------------------------------------------------------------


def is_affected(case: Case, name: str, version: str) -> bool:
    """Return whether the case's advisory names this version of the package."""
    record = case.record
    return not record.get("withdrawn") and any(
        entry["package"]["ecosystem"] == case.ecosystem
        and _key(case, entry["package"]["name"]) == _key(case, name)
        and _names(case, entry, version)
        for entry in record["affected"]
    )


def _names(case: Case, entry: Mapping[str, Any], version: str) -> bool:
    this = _order(case, version)
    if this is None:
        return version in entry.get("versions", ())
    if any(_order(case, it) == this for it in entry.get("versions", ())):
        return True
    return any(
        _within(case, this, span["events"])
        for span in entry.get("ranges", ())
        if span["type"] in ("SEMVER", "ECOSYSTEM")
    )


def _within(case: Case, this: Any, events: Iterable[Mapping[str, str]]) -> bool:
    """Walk the events in the order of their versions: the last that reaches ``this`` decides."""
    ranks = ("fixed", "limit", "introduced", "last_affected")
    steps: list[tuple[bool, Any, int]] = []
    for event in events:
        for kind, at in event.items():
            order = None if at == "0" else _order(case, at)
            steps.append((order is not None, order, ranks.index(kind)))
    steps.sort(key=lambda step: (step[0], step[1] if step[0] else 0, step[2]))
    affected = False
    for is_version, order, rank in steps:
        if not is_version or order < this or (order == this and ranks[rank] != "last_affected"):
            affected = ranks[rank] == "introduced"
    return affected


def _order(case: Case, version: str) -> Any:
    """Return what versions of the ecosystem are compared by; None if it is no version of it."""
    if case.ecosystem == "npm":
        return _semver(version)
    try:
        return Version(version)
    except InvalidVersion:
        return None


_SEMVER = re.compile(r"[v=\s]*(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?$")


def _semver(version: str) -> tuple[Any, ...] | None:
    """Return the precedence of a semantic version; None if it is none."""
    if not (found := _SEMVER.match(version)):
        return None
    numbers = tuple(int(number) for number in found.groups()[:3])
    if found[4] is None:
        return (*numbers, (1,))
    words = found[4].split(".")
    return (*numbers, (0, *((0, int(it), "") if it.isdigit() else (1, 0, it) for it in words)))


def _key(case: Case, name: str) -> str:
    return name if case.ecosystem == "npm" else canonicalize_name(name)


def _published(case: Case, name: str) -> list[str]:
    return [it.version for it in case.packages if _key(case, it.name) == name and not it.yanked]


# --- declarations ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Declaration:
    """A line of a manifest that asks for a package. ``spec``: None is a range that is not read here."""

    path: str
    name: str
    text: str
    spec: Any

    def admits(self, version: str) -> bool:
        """Return whether the range admits a version; False if this reader does not know the range."""
        if isinstance(self.spec, Requirement):
            return self.spec.specifier.contains(version, prereleases=True)
        return isinstance(self.spec, str) and _npm_admits(self.spec, version)


def _declarations(root: Path, case: Case) -> Iterator[_Declaration]:
    for path in _paths(root):
        name = Path(path).name
        try:
            if case.ecosystem == "npm":
                if name == "package.json" and "node_modules" not in Path(path).parts:
                    yield from _of_package_json(path, _text(root / path))
            elif "requirements" in path and name.endswith((".txt", ".in")):
                yield from _of_lines(path, _text(root / path).splitlines())
            elif name == "pyproject.toml":
                yield from _of_pyproject(path, _text(root / path))
        except (ValueError, TypeError, AttributeError):
            continue


def _of_lines(path: str, lines: Iterable[str]) -> Iterator[_Declaration]:
    for line in lines:
        text = re.split(r"\s#|\s--hash|\s\\$|^#", line.removeprefix("\ufeff").strip())[0].strip()
        try:
            asked = Requirement(text)
        except InvalidRequirement:
            continue
        yield _Declaration(path, canonicalize_name(asked.name), text, None if asked.url else asked)


def _of_pyproject(path: str, text: str) -> Iterator[_Declaration]:
    document = tomllib.loads(text.removeprefix("\ufeff"))
    project = document.get("project", {})
    groups = [
        project.get("dependencies", []),
        *project.get("optional-dependencies", {}).values(),
        *document.get("dependency-groups", {}).values(),
    ]
    for group in groups:
        yield from _of_lines(path, (line for line in group if isinstance(line, str)))


def _of_package_json(path: str, text: str) -> Iterator[_Declaration]:
    document = json.loads(text.removeprefix("\ufeff"))
    for section in ("dependencies", "devDependencies", "optionalDependencies"):
        for name, wanted in document.get(section, {}).items():
            spec, target = str(wanted), name
            if spec.startswith("npm:"):
                target, _, spec = spec.removeprefix("npm:").rpartition("@")
            yield _Declaration(path, target, f'"{name}": "{wanted}"', spec)


def _npm_admits(spec: str, version: str) -> bool:
    """Return whether one npm range (alternatives by ``||``) admits a version; False if it is no range."""
    at = _semver(version)
    if at is None or at[3] != (1,):
        return at is not None and _semver(spec) == at
    return any(_in_comparators(one, at[:3]) for one in spec.split("||"))


def _in_comparators(text: str, at: tuple[Any, ...]) -> bool:
    hyphen = re.fullmatch(r"\s*(\S+)\s+-\s+(\S+)\s*", text)
    words = [f">={hyphen[1]}", f"<={hyphen[2]}"] if hyphen else re.findall(r"[<>=~^v]*\s*\S+", text)
    return all(_in_comparator(word, at) for word in words)


def _in_comparator(word: str, at: tuple[Any, ...]) -> bool:
    found = re.fullmatch(r"([<>=~^]*)\s*v?([\dxX*]+(?:\.[\dxX*]+){0,2})(-\S+)?", word.strip())
    if not found:
        return False
    numbers = [int(it) for it in takewhile(str.isdigit, found[2].split("."))]
    low = (*numbers, 0, 0, 0)[:3]
    kind = found[1]
    if kind == "^" and numbers:
        fixed = next((i for i, it in enumerate(numbers) if it), len(numbers) - 1)
        return low <= at < _after(numbers[: fixed + 1])
    if kind.startswith("~") and numbers:
        return low <= at < _after(numbers[:2])
    if kind == ">=":
        return at >= low
    if kind == ">":
        return at >= _after(numbers)
    if kind == "<":
        return at < low
    if kind == "<=":
        return at < _after(numbers)
    return not numbers or low <= at < _after(numbers)


def _after(numbers: list[int]) -> tuple[int, ...]:
    """Return the first version after all that begin with these numbers."""
    return (*numbers[:-1], numbers[-1] + 1, 0, 0)[:3]


# --- files ----------------------------------------------------------------------------------------


def _paths(root: Path) -> list[str]:
    """Return the files of a repository that git does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    return sorted({path for path in listed.stdout.split("\0") if path})


def _content(path: Path) -> object:
    if path.is_symlink():
        return path.readlink()
    return (path.read_bytes(), path.stat().st_mode & 0o111) if path.is_file() else None


def _text(path: Path) -> str:
    """Return a file's text with its own line ends; empty if there is no such file."""
    return path.read_bytes().decode("utf-8", "replace") if path.is_file() else ""


_LOCK = re.compile(r"lock|shrinkwrap")


def _form(path: Path) -> dict[str, object]:
    """Return what an edit must not change of a file: line ends, byte order mark, indent of JSON."""
    text = _text(path)
    lines = text.splitlines(keepends=True)
    ends = {"\r\n" if line.endswith("\r\n") else "\n" for line in lines[:-1]}
    form: dict[str, object] = {"byte order mark": text.startswith("\ufeff")}
    if ends:
        form["line end"] = "".join(sorted(ends))
    if lines and not _LOCK.search(path.name):  # a client writes its lock as it likes
        form["end of the last line"] = lines[-1].endswith("\n")
    if path.suffix == ".json" and (indent := re.search(r"^[ \t]+(?=\S)", text, re.MULTILINE)):
        form["indent"] = indent[0]
    return form
