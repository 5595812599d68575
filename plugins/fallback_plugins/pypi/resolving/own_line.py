"""Of a parent that is raised across a major version, the release that was made for the child's own line.

"werkzeug>=2.0" admits releases that came years later, and were never tried with this parent. Within a major
version the lowest parent that admits a fixed child is the smallest step (ADR-0016). Across one everything
moves anyway, and the lowest that admits it is the least like what its authors had: so the lowest is taken
whose lower bound is of the fixed version's line.
"""

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from fallback_plugins.pypi.resolving.scratch_lock import PackageIndex
from fallback_tier.errors import RecipeError

#: Minor lines of a parent that are looked at; each costs some runs of uv.
MAX_LINES = 8

_FLOORS = frozenset({">=", ">", "~=", "=="})


def of_its_line(
    index: PackageIndex, parent: tuple[str, str, str], child: tuple[str, str], python: str
) -> str:
    """The version of a parent to take. ``parent``: its name, the version held, the lowest that admits the
    child; ``child``: its name and the fixed version; ``python``: the lowest of the project.

    The lowest, where it is of the same major version as the one held, where no release up to the next major
    version was made for the child's line, and where nothing tells. Raises ToolMissingError.
    """
    name, held, lowest = parent
    package, target = child
    found = lowest
    if Version(lowest).major == Version(held).major:
        return lowest
    for _ in range(MAX_LINES):
        try:
            asked = _asked(index, name, found, package, python)
            if asked is None or not asked.contains(target, prereleases=True):
                return lowest
            if _is_of_line(asked, Version(target)):
                return found
            at = Version(found)
            above = f"{name}>={at.major}.{at.minor + 1},<{at.major + 1}"
            found = index.lowest_with(above, f"{package}>={target}", python)[name]
        except RecipeError:
            return lowest
    return lowest


def _asked(
    index: PackageIndex, name: str, version: str, package: str, python: str
) -> SpecifierSet | None:
    """What a release asks for of the child; None: nothing, or only with an extra."""
    _, metadata = index.release(name, version, python)
    asked = [one for one in metadata.requirements if _is_of(one, package)]
    return asked[0].specifier if asked else None


def _is_of(asked: Requirement, package: str) -> bool:
    return canonicalize_name(asked.name) == package and "extra" not in str(asked.marker or "")


def _is_of_line(asked: SpecifierSet, target: Version) -> bool:
    floors = (it.version.removesuffix(".*") for it in asked if it.operator in _FLOORS)
    return any(Version(floor).release[:2] >= target.release[:2] for floor in floors)
