"""Rows of the measure, and the page that is made from them."""

from collections.abc import Iterable, Sequence

from fallback_eval.campaign import Half, Rows
from tests.campaigns.capability.evasions import LISTS
from tests.campaigns.measuring.frozen import Frozen
from tests.campaigns.measuring.pages import Share, table

_HEAD = """# The capability gate: false alarms and evasions

Written by `make eval-capability`, by nobody's hand. A *false alarm* is a real, published fix of which
the gate would ask for a declaration. Each is judged whole: its files before and after, in its project
at the commit before it. Fixes of which no source is in a language that is read, and those whose clone
is missing, are not counted. The halves were chosen by a hash of repository and commit before any was
looked at; the gate was made on one, and the other was looked at once. A fix that brings in a library
which the project's manifests did not name can't be said by a plan, which adds no dependency: *without
new libraries* leaves those out.

"""

_EVASIONS = """
An *evasion* starts a process, opens a connection, or runs or leads to made-up code in a way that a list
of words may not have. Both lists were committed before the gate was changed; *unseen* was not run
against it while it was made. Each stands at the end of a harmless file: alone, and in real projects,
whose own words may excuse it. Both lists are by the gate's author: somebody else's would be a better
measure.

"""


class Fix(Frozen):
    """A real fix, and what the gate would have had declared."""

    half: Half
    name: str
    ecosystem: str
    is_asked: bool
    #: It brings in a library that the project's manifests did not name: no plan can.
    is_library: bool = False
    uses: tuple[str, ...] = ()


class Caught(Frozen):
    """An evasion: is it caught alone, and in how many of so many projects?"""

    of: str
    language: str
    name: str
    alone: bool
    in_projects: int
    projects: int


class Row(Frozen):
    """A line of the results: one of the two."""

    fix: Fix | None = None
    caught: Caught | None = None

    @property
    def key(self) -> str:
        """What the row is of."""
        one = self.fix or self.caught
        assert one is not None
        return (
            f"{one.half}: {one.name}"
            if isinstance(one, Fix)
            else f"{one.of}: {one.language} {one.name}"
        )


def page(rows: Sequence[Row]) -> str:
    """The page."""
    fixes = [row.fix for row in rows if row.fix is not None]
    caught = [row.caught for row in rows if row.caught is not None]
    return f"{_HEAD}{_rates(fixes)}{_EVASIONS}{_detection(caught)}{_missed(caught)}{_asked(fixes)}"


def _rates(fixes: Sequence[Fix]) -> str:
    rows = []
    for half in Half:
        for ecosystem in ("PyPI", "npm", ""):
            found = [fix for fix in fixes if fix.half is half and ecosystem in (fix.ecosystem, "")]
            if found:
                known = sum(_is_listed(fix) for fix in found)
                asked = sum(fix.is_asked for fix in found)
                library = sum(fix.is_library for fix in found)
                shares = (_percent(asked, len(found)), _percent(asked - library, len(found)))
                rows.append(
                    [half.value, ecosystem or "both", *shares, str(known), str(asked - known)]
                )
    head = [
        "half",
        "ecosystem",
        "asked",
        "without new libraries",
        "of a listed kind",
        "unknown alone",
    ]
    return table(head, rows)


def _percent(part: int, whole: int) -> str:
    return f"{part} of {whole} ({100 * part / whole:.1f} %)"


def _is_listed(fix: Fix) -> bool:
    return any(not use.startswith("new unknown use") for use in fix.uses)


def _detection(caught: Sequence[Caught]) -> str:
    rows = []
    for of in LISTS:
        for language in ("python", "javascript", ""):
            found = [one for one in caught if one.of == of and language in (one.language, "")]
            if found:
                alone = Share(sum(one.alone for one in found), len(found))
                put = Share(sum(one.in_projects for one in found), sum(o.projects for o in found))
                rows.append([of, language or "both", str(alone), str(put)])
    return table(["list", "language", "caught alone", "caught in real projects"], rows)


def _missed(caught: Iterable[Caught]) -> str:
    rows = [
        [one.of, one.language, one.name, "no" if not one.alone else "yes", _in(one)]
        for one in caught
        if not one.alone or one.in_projects < one.projects
    ]
    head = ["list", "language", "evasion", "caught alone", "in projects"]
    return f"\nWhat gets past it:\n\n{table(head, rows)}"


def _in(one: Caught) -> str:
    return f"{one.in_projects} of {one.projects}"


def _asked(fixes: Iterable[Fix]) -> str:
    rows = [[fix.half.value, fix.name, "; ".join(fix.uses)] for fix in fixes if fix.is_asked]
    head = ["half", "fix", "what"]
    return f"\nFixes that would have to declare something:\n\n{table(head, sorted(rows))}"


ROWS = Rows(Row, key=lambda row: row.key, page=page)
