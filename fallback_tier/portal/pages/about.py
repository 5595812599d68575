"""One advisory, one repository, one solved example: where it was, and what became of it."""

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from fallback_tier.advisory.vulnerability import Vulnerability
from fallback_tier.gates.journal.inputs import recorded_vulnerabilities
from fallback_tier.portal.lines import FixLine
from fallback_tier.portal.rendering import PREFIX
from fallback_tier.portal.routing import PageRoute, ReadersVisit, Visit
from fallback_tier.service.refusals import NotFoundError

router = APIRouter(prefix=PREFIX, route_class=PageRoute, include_in_schema=False)

#: Fixes that such a page lists.
ROWS = 200

_Name = Annotated[str, Query(max_length=1_000)]


@router.get("/advisory")
def advisory(visit: ReadersVisit, id: _Name) -> Response:  # noqa: A002
    """What it says, as the newest fix of it has it on record, and every fix of it."""
    return _about(visit, "Advisory", id, lambda line: id in (line.advisory_id, *line.advisory_ids))


@router.get("/repository")
def repository(visit: ReadersVisit, name: _Name) -> Response:
    """Every fix in it."""
    return _about(visit, "Repository", name, lambda line: line.repository == name)


@router.get("/example")
def example(visit: ReadersVisit, id: _Name) -> Response:  # noqa: A002
    """Where it had an influence: found, in a prompt, or replayed."""
    return _about(visit, "Example", id, lambda line: id in line.influences)


def _about(visit: Visit, kind: str, name: str, is_meant: Callable[[FixLine], bool]) -> Response:
    found = [line for line in visit.read.board.newest() if is_meant(line)]
    if not found:
        raise NotFoundError(
            f"No fix on record has to do with {kind.lower()} {name!r}.",
            next_step="The list of fixes can be searched.",
        )
    vulnerabilities = _recorded(visit, name, found) if kind == "Advisory" else ()
    return visit.page(
        "about.html",
        read=visit.read,
        kind=kind,
        name=name,
        vulnerabilities=vulnerabilities,
        lines=found[:ROWS],
        total=len(found),
    )


def _recorded(visit: Visit, name: str, lines: list[FixLine]) -> tuple[Vulnerability, ...]:
    """The advisory of this name, by the first of these fixes whose record has it; a bundle has several."""
    evidence = visit.service.record.evidence
    for line in lines[:ROWS]:
        recorded = recorded_vulnerabilities(line.inputs_sha256, evidence)
        if found := tuple(one for one in recorded if name in (one.id, line.advisory_id)):
            return found
    return ()
