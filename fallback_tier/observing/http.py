"""Routes of a service about itself: metrics, liveness and readiness."""

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.params import Depends

from fallback_audit.frozen import Frozen
from fallback_tier.observing.health.running import Health
from fallback_tier.observing.observer import Observer


class Readiness(Frozen):
    """What anybody may know: reasons name paths and servers."""

    ready: bool


#: Status if not ready: clients should send requests elsewhere for now.
UNAVAILABLE = 503


def routes(observer: Observer, *, readers: Sequence[Depends] = ()) -> APIRouter:
    """Return a router for this observer.

    ``readers``: dependencies that permit reading metrics and findings. Liveness and readiness are open,
    since supervisors and load balancers can't sign in, and reveal no more than that.
    """
    router = APIRouter(tags=["operation"])

    @router.get("/metrics", dependencies=[*readers], response_class=Response, responses=_TEXT)
    def metrics(request: Request) -> Response:
        """For Prometheus: text, or OpenMetrics where that is accepted."""
        text, content_type = observer.metrics(request.headers.get("accept", ""))
        return Response(text, headers={"content-type": content_type})

    @router.get("/v1/metrics", dependencies=[*readers])
    def metrics_as_json() -> dict[str, Any]:
        """The same as JSON; of a histogram its count and sum."""
        return observer.document()

    @router.get("/health/live")
    def live() -> dict[str, str]:
        """The process answers. When it does not, start it again."""
        return {"state": "alive"}

    @router.get("/health/ready", responses={UNAVAILABLE: {"model": Readiness}})
    def ready(response: Response) -> Readiness:
        """May fixes be sent here? If not, `/v1/health` says why."""
        health = observer.health()
        if not health.ready:
            response.status_code = UNAVAILABLE
        return Readiness(ready=health.ready)

    @router.get("/v1/health", dependencies=[*readers], responses={UNAVAILABLE: {"model": Health}})
    def findings(response: Response) -> Health:
        """The same with every check: its reason, and what to do."""
        health = observer.health()
        if not health.ready:
            response.status_code = UNAVAILABLE
        return health

    return router


_TEXT: dict[int | str, dict[str, Any]] = {
    200: {"description": "Prometheus' text format", "content": {"text/plain": {}}}
}
