"""The whole portal, for the service's application."""

from dataclasses import dataclass
from functools import partial
from importlib.resources import files

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from fallback_tier.errors import FallbackError
from fallback_tier.observing.record import open_record
from fallback_tier.portal.board import Board
from fallback_tier.portal.pages import (
    campaigns,
    changes,
    fixes,
    overview,
    settings,
    sign_in,
    triage,
    verification,
)
from fallback_tier.portal.pages.changes import Bell, Recent
from fallback_tier.portal.routing import PREFIX, PageRoute, problem_page
from fallback_tier.service.http.problems import status_of
from fallback_tier.service.opening import Service

#: A browser requests these again after an hour, so that a new version's pages get the new version's files.
_STATIC_HEADERS = {
    "Cache-Control": "max-age=3600",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}


#: Modules with a router.
PAGES = (
    sign_in,
    overview,
    triage,
    changes,
    fixes,
    campaigns,
    verification,
    settings,
)


@dataclass(frozen=True)
class Portal:
    """The pages, and what they are made from."""

    board: Board
    bell: Bell

    def problem(self, request: Request, error: FallbackError) -> Response:
        """Return an error of the service's own routes as a page."""
        return problem_page(request, status_of(error), error.problem, error.next_step)

    def mount(self, app: FastAPI) -> None:
        """Add the pages below ``/portal``, and a redirect from ``/``."""
        app.state.board, app.state.bell = self.board, self.bell
        app.state.last_report = verification.LastReport()
        for module in PAGES:
            app.include_router(module.router)
        directory = str(files("fallback_tier.portal") / "static")
        app.mount(f"{PREFIX}/static", _Static(directory=directory), name="portal-static")
        app.include_router(_rest)


def open_portal(service: Service) -> Portal:
    """Return the portal of a service."""
    record = service.record
    recent = Recent()
    board = Board(partial(open_record, record.state_dir, record.settings), live=[recent])
    return Portal(board, Bell(board, recent, service.feed, service.settings.limits.followers))


class _Static(StaticFiles):
    def file_response(self, *args: object, **kwargs: object) -> Response:
        """Add cache and `nosniff` headers, so that browsers don't guess types."""
        response: Response = super().file_response(*args, **kwargs)  # type: ignore[arg-type]
        response.headers.update(_STATIC_HEADERS)
        return response


_rest = APIRouter(route_class=PageRoute, include_in_schema=False)


@_rest.get("/")
async def first() -> Response:
    """Redirect a browser that was given the service's address."""
    return RedirectResponse(f"{PREFIX}/", 303)


@_rest.get(PREFIX + "/{rest:path}")
async def nothing(request: Request) -> Response:
    """Return the page for an unknown address."""
    return problem_page(
        request,
        404,
        "There is no page at this address.",
        "The overview leads to all that there are.",
    )
