"""npm's gate on imports: the direct dependencies of a project can still be loaded."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Any

from fallback_plugins.npm.gates.npm_gate import NpmGate, beside_base
from fallback_plugins.npm.installing.installation import Installation
from fallback_plugins.npm.manifests import tsconfig
from fallback_plugins.npm.manifests.layout import ECOSYSTEM
from fallback_plugins.npm.manifests.manifest import SECTIONS, entries, parse_manifest
from fallback_plugins.npm.usage import is_source, mentions, requires
from fallback_plugins.shared.gates import gating
from fallback_plugins.shared.gates.loading import Loading, Rewriting, judge_loading, limits
from fallback_plugins.shared.installed import NotInstalled
from fallback_tier.errors import RepositoryError
from fallback_tier.execution import CommandResult
from fallback_tier.gate_ports import GateContext, GateVerdict
from fallback_tier.repo import RepoContext

#: Dependencies that are loaded in one project, the advisory's own first, then what it runs with.
MAX_DEPENDENCIES = 50

#: Types for a compiler: nothing to load.
_TYPES = "@types/"

#: The probe's word for what ``require`` does not load any more, and a bundler or a compiler may.
_ES_MODULE = "it is an ES module, which only import() loads"

_BROWSER = "window|document|navigator|self|location|localStorage|customElements|[A-Z]\\w*Element|Node|Event"

#: What can't be loaded here in either tree, however it says so: what an install script or a compiler would
#: have made (no script runs while installing), and what is written for a browser.
_VARYING: tuple[Rewriting, ...] = (
    (re.compile(r"without its install script: .*"), "not built"),
    (re.compile(r".*(?:\.node\b|bindings file|node-gyp).*"), "not built"),
    (re.compile(rf"ReferenceError: (?:{_BROWSER}) is not defined"), "not in a browser"),
)


@dataclass(frozen=True)
class _Asked:
    """One dependency as one manifest asks for it."""

    name: str
    spec: str
    folder: str
    way: str
    label: str


class ImportsGate(NpmGate):
    """What a project asks for itself can be loaded, where the patch changes what is installed."""

    name = "imports"

    def _project(self, context: GateContext, folder: str) -> GateVerdict:
        project = Installation(context, gating.patched(context), folder)
        base = Installation(context, context.repo, folder)
        if not project.inputs.declares:
            return gating.skipped(self.name, f"{project.manifest} declares no dependencies")
        if project.inputs.identity == base.inputs.identity:
            return gating.skipped(self.name, f"no dependency of {project.manifest} moves")
        if (absent := project.install().absent) is not None:
            return gating.skipped(self.name, absent.sentence)
        every = {one.label: one for one in _asked(context, project)}
        if not every:
            return gating.skipped(self.name, f"{project.manifest} asks for nothing that is loaded")

        def run(tree: RepoContext, labels: Sequence[str]) -> CommandResult | NotInstalled:
            return _run(Installation(context, tree, folder), [every[label] for label in labels])

        def excused(label: str, message: str) -> bool:
            return message == _ES_MODULE and not _is_required(gating.patched(context), every[label])

        asked = Loading(tuple(every), run, base.contents, _VARYING, excused)
        return beside_base(project, base, lambda: judge_loading(self.name, context, folder, asked))


def _asked(context: GateContext, project: Installation) -> Sequence[_Asked]:
    """Of the root and its members, each name and spec once; manifests that the patch changed first."""
    changed, packages = context.application.files, context.advisory.packages(ECOSYSTEM)
    paths = sorted(project.inputs.own, key=lambda path: path not in changed)
    facts = {path: parse_manifest(path, project.inputs.files.manifests[path]) for path in paths}
    found: dict[tuple[str, ...], _Asked] = {}
    for section in SECTIONS:
        for path in paths:
            for one in _in_section(project.folder, path, facts[path], section):
                found.setdefault((one.name, one.spec, one.way), one)
    first = sorted(found.values(), key=lambda one: one.name not in packages)
    return first[:MAX_DEPENDENCIES]


def _in_section(root: str, path: str, facts: Mapping[str, Any], section: str) -> Iterator[_Asked]:
    folder = str(PurePosixPath(path).parent)
    way = "import" if facts.get("type") == "module" else "require"
    for name, spec in entries(facts.get(section)):
        if not name.startswith(_TYPES):
            label = name if folder == root else f"{name} (in {folder})"
            yield _Asked(name, spec, folder, way, label)


def _run(target: Installation, asked: Sequence[_Asked]) -> CommandResult | NotInstalled:
    if (absent := target.install().absent) is not None:
        return absent
    context = target.context
    source = files("fallback_plugins.npm.gates").joinpath("import_probe.js").read_text("utf-8")
    given = json.dumps([(one.label, one.name, one.folder, one.way) for one in asked])
    tree = target.tree
    result = context.sandbox.run(
        ["node", "-e", source, *limits(context), given], worktree=tree, timeout_s=context.timeout_s
    )
    return result.model_copy(update={"output": gating.relative_log(result, tree.root)})


def _is_required(repo: RepoContext, asked: _Asked) -> bool:
    """Does a file of the project call ``require`` for it, or is compiled to do so? What only imports it
    otherwise is bundled."""
    compiled = True
    with suppress(RepositoryError):
        compiled = tsconfig.compiles_to_require(repo, asked.folder)
    for path in repo.tracked_files:
        if is_source(path) and PurePosixPath(path).is_relative_to(asked.folder):
            with suppress(RepositoryError):
                text = repo.read_text(path)
                if requires(asked.name, text) or (compiled and mentions(asked.name, path, text)):
                    return True
    return False
