"""PyPI's gate on imports: the project's modules and its direct dependencies' can still be imported."""

from collections.abc import Sequence

from fallback_plugins.pypi.gates.checks import PythonRun
from fallback_plugins.pypi.gates.dependencies import dependency_modules
from fallback_plugins.pypi.gates.lacking import beside_base
from fallback_plugins.pypi.gates.touched import PyPIGate, modules
from fallback_plugins.pypi.installing.environment import Environment
from fallback_plugins.pypi.probes.observed import source_of
from fallback_plugins.shared.gates import gating
from fallback_plugins.shared.gates.comparing import Loading, judge_loading, limits
from fallback_tier.gate_ports import GateContext, GateVerdict

#: Own modules imported in one project; those that the patch touched come first.
MAX_MODULES = 25


class ImportsGate(PyPIGate):
    """What the patch touched, the project's own packages and its direct dependencies can be imported.

    Dependencies are asked for where the patch changes what is installed.
    """

    name = "imports"

    def _project(self, context: GateContext, folder: str) -> GateVerdict:
        project = Environment(context, gating.patched(context), folder)
        own = modules(context, folder)[:MAX_MODULES]
        if not own and not project.declares:
            why = f"{folder!r} has no module of its own to import, and declares no dependencies"
            return gating.skipped(self.name, why)
        if (absent := project.install().absent) is not None:
            return gating.skipped(self.name, absent.sentence)
        names = tuple(dict.fromkeys((*own, *dependency_modules(project))))
        if not names:
            why = f"{folder!r} has no module of its own to import, and no dependency of it moves"
            return gating.skipped(self.name, why)

        def probe(some: Sequence[str]) -> PythonRun:
            return PythonRun(project, ["-c", source_of("import_probe"), *limits(context), *some])

        asked = Loading(names, lambda tree, some: probe(some)(tree), probe(names).at_base)
        return beside_base(project, lambda: judge_loading(self.name, context, folder, asked))
