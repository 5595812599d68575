"""Where a project configures TypeScript, and what its compiler says."""

import posixpath
import re
from pathlib import PurePosixPath

from fallback_plugins.npm.manifests.layout import MANIFEST, in_folder
from fallback_plugins.npm.manifests.manifest import SECTIONS, parse_manifest
from fallback_plugins.shared.gates.comparing import Finding
from fallback_tier.errors import RecipeError, RepositoryError
from fallback_tier.execution import CommandResult
from fallback_tier.repo import RepoContext

TSCONFIG = "tsconfig.json"

#: The compiler as npm installed it for the project.
COMPILER = "node_modules/typescript"
TSC = "node_modules/.bin/tsc"

#: One line a complaint, and nothing written: what a build makes is the build's to make.
OPTIONS = ("--noEmit", "--pretty", "false")

#: Configurations that are checked in one project: the packages of a monorepo, not the cases of a
#: compiler's test suite.
MAX_CONFIGURATIONS = 12

#: Complaints after which others are not made: of the options (they name no file), and of a referenced
#: project without output, whose types are unknown then (TS6305,
#: https://www.typescriptlang.org/docs/handbook/project-references.html). A build tells more.
_BLOCKED = re.compile(r"^(?:error TS|.*: error TS6305:)", re.MULTILINE)

_COMPLAINT = re.compile(r"^(?:(?P<path>\S[^(]*)\(\d+,\d+\): )?(?P<what>error TS(?!6305:)\d+: .*)$")

#: A configuration is JSON with comments; strings are matched too, so that what is in them is none.
_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_REFERENCES = re.compile(r'"references"\s*:\s*\[(.*?)\]', re.DOTALL)
_TO_REQUIRE = re.compile(r'"module"\s*:\s*"commonjs"', re.IGNORECASE)
_REFERENCE = re.compile(r'"path"\s*:\s*"([^"\\]+)"')


def configurations(repo: RepoContext, folder: str) -> tuple[str, ...]:
    """The tracked configurations of a project, nearest its root first, and those they refer to."""
    found = [path for path in repo.tracked_files if _is_configuration(path, folder)]
    found.sort(key=lambda path: (path.count("/"), path))
    for path in found:  # which grows
        found += [other for other in _references(repo, path) if other not in found]
    return tuple(found)


def compiles_to_require(repo: RepoContext, folder: str) -> bool:
    """Does a configuration say that imports become calls of ``require``?"""
    return any(
        _TO_REQUIRE.search(_plain(repo.read_text(path))) for path in configurations(repo, folder)
    )


def declares_typescript(repo: RepoContext, folder: str) -> bool:
    """Does the project, or one of its workspaces, depend on the compiler?"""
    manifests = (
        path
        for path in repo.manifests
        if PurePosixPath(path).name == MANIFEST and PurePosixPath(path).is_relative_to(folder)
    )
    return any(_asks_for_it(repo, path) for path in {in_folder(folder, MANIFEST), *manifests})


def _asks_for_it(repo: RepoContext, path: str) -> bool:
    """No, where it can't be read: a fixture's may be as broken as it likes."""
    try:
        facts = parse_manifest(path, repo.read_text(path))
    except (RecipeError, RepositoryError):
        return False
    sections = (facts.get(section) for section in SECTIONS)
    return any(isinstance(section, dict) and "typescript" in section for section in sections)


def findings(output: str) -> list[Finding]:
    """The compiler's complaints, without the lines that explain one."""
    found = (_COMPLAINT.fullmatch(line) for line in output.splitlines())
    return [Finding(f"{one['path'] or ''}: {one['what']}", one[0]) for one in found if one]


def is_blocked(result: CommandResult) -> bool:
    """Did the compiler stop short of checking every type?"""
    return _BLOCKED.search(result.output) is not None


def _is_configuration(path: str, folder: str) -> bool:
    pure = PurePosixPath(path)
    return (
        pure.name == TSCONFIG
        and pure.is_relative_to(folder)
        and not {"node_modules", "fixtures", "__fixtures__"}.intersection(pure.parts)
    )


def _references(repo: RepoContext, path: str) -> list[str]:
    table = _REFERENCES.search(_plain(repo.read_text(path)))
    found = []
    for named in _REFERENCE.findall(table[1]) if table else ():
        place = posixpath.normpath(posixpath.join(posixpath.dirname(path), named))
        found.append(place if place.endswith(".json") else in_folder(place, TSCONFIG))
    return [other for other in found if repo.has(other)]


def _plain(text: str) -> str:
    return _COMMENT.sub(lambda match: match[0] if match[0][0] == '"' else "", text)
