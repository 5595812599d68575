"""Pins without a wheel: uv, which may build nothing, can't hold what they ask for against a bump.

So that no bump is called a fix which they exclude, their archives are read.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fallback_plugins.pypi.resolving.resolver import UvRefusedError
from fallback_plugins.pypi.resolving.scratch_lock import PackageIndex
from fallback_plugins.pypi.resolving.sdist import sdist_requirements
from fallback_plugins.pypi.resolving.uv_client import UvClient, Wanted
from fallback_plugins.pypi.resolving.wanted import name_of
from fallback_plugins.pypi.uv_words import one_line
from fallback_plugins.shared.ladder import blocked
from fallback_tier.errors import RecipeError, ToolError

#: Pins of one set that are read so: each costs a listing and an archive.
MAX_WITHOUT_WHEEL = 10

#: A name is tried from its beginning alone: from each of its parts, a long one takes hours.
_NO_WHEEL = re.compile(
    r"(?<![\w.-])(?P<name>[A-Za-z0-9][\w.-]*)==(?P<version>[\w.!+-]+) has no usable wheels"
)


@dataclass
class PinsWithoutWheel:
    """Those of one set. ``unknown``: what could not be told of them, in sentences."""

    uv: UvClient
    path: str
    unknown: list[str] = field(default_factory=list)

    def check(self, wanted: Wanted, moved: Mapping[str, str], refused: UvRefusedError) -> None:
        """Raises RecipeError where one of them does not admit a version of ``moved``. ``refused``: what uv
        said of what is wanted."""
        for name, version in self._in(wanted, refused):
            why = "its archive does not say what it depends on"
            try:
                requirements = self._requirements(name, version)
            except (RecipeError, ToolError) as error:
                requirements = None
                why = f"what it depends on could not be read ({error.problem.rstrip('.')})"
            if requirements is None:
                self.unknown.append(
                    f"{name} {version} in {self.path} has no wheel, and {why}: "
                    f"{', '.join(moved)} could not be checked against it."
                )
            for requirement in requirements or ():
                package = canonicalize_name(requirement.name)
                new = moved.get(package)
                if new is not None and not requirement.specifier.contains(new, prereleases=True):
                    spec = str(requirement.specifier)
                    who = f"{name} {version}"
                    raise blocked(package, new, parent=who, spec=spec, where=self.path)

    def _in(self, wanted: Wanted, refused: UvRefusedError) -> Iterator[tuple[str, str]]:
        """One after the other, as uv names them."""
        for _ in range(MAX_WITHOUT_WHEEL):
            found = _NO_WHEEL.search(one_line(refused.output))
            name = canonicalize_name(found["name"]) if found else ""
            rest = tuple(line for line in wanted.requirements if name_of(line) != name)
            if found is None or rest == wanted.requirements:
                return
            yield name, found["version"]
            wanted = replace(wanted, requirements=rest)
            try:
                self.uv.resolve(self.path, wanted)
            except UvRefusedError as error:
                refused = error
            except (RecipeError, ToolError):
                return
            else:
                return

    def _requirements(self, name: str, version: str) -> tuple[Requirement, ...] | None:
        here = f"{sys.version_info.major}.{sys.version_info.minor}"
        release = PackageIndex(self.uv.clients).lowest(name, f"=={version}", here)
        archives = [file for file in release.files if not file.name.endswith(".whl")]
        return sdist_requirements(archives[0]) if archives else None
