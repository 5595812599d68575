"""One advisory, one repository, one solved example: where it was, and what became of it."""

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from fallback_tier.portal.given import Read, TheBoard
from fallback_tier.portal.lines import FixLine
from fallback_tier.portal.rendering import PREFIX, page
from fallback_tier.portal.routing import PageRoute, Reader
from fallback_tier.service.http.sessions import SignedIn
from fallback_tier.service.refusals import NotFoundError

router = APIRouter(prefix=PREFIX, route_class=PageRoute, include_in_schema=False)

#: Fixes that such a page lists.
ROWS = 200

_Name = Annotated[str, Query(max_length=1_000)]


@router.get("/advisory")
def advisory(request: Request, read: TheBoard, who: Reader, id: _Name) -> Response:  # noqa: A002
    """Every fix of it."""
    return _about(
        request,
        read,
        who,
        "Advisory",
        id,
        lambda line: id in (line.advisory_id, *line.advisory_ids),
    )


@router.get("/repository")
def repository(request: Request, read: TheBoard, who: Reader, name: _Name) -> Response:
    """Every fix in it."""
    return _about(request, read, who, "Repository", name, lambda line: line.repository == name)


@router.get("/example")
def example(request: Request, read: TheBoard, who: Reader, id: _Name) -> Response:  # noqa: A002
    """Where it had an influence: found, in a prompt, or replayed."""
    return _about(request, read, who, "Example", id, lambda line: id in line.influences)


def _about(
    request: Request,
    read: Read,
    who: SignedIn,
    kind: str,
    name: str,
    is_meant: Callable[[FixLine], bool],
) -> Response:
    found = [line for line in read.board.newest() if is_meant(line)]
    if not found:
        raise NotFoundError(
            f"No fix on record has to do with {kind.lower()} {name!r}.",
            next_step="The list of fixes can be searched.",
        )
    return page(
        "about.html",
        request,
        who,
        read=read,
        kind=kind,
        name=name,
        lines=found[:ROWS],
        total=len(found),
    )
