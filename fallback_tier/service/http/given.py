"""What routes are given: the service, a fix's name, an idempotency key."""

from typing import Annotated

from fastapi import Depends, Header, Path, Request

from fallback_tier.service.opening import Service


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


TheService = Annotated[Service, Depends(_service)]

#: Ours are ``fix-`` and 16 digits; other orchestrators' fixes are on record under names of theirs.
FixId = Annotated[
    str,
    Path(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
        description="identifier of a fix",
        examples=["fix-0123456789abcdef"],
    ),
]

DigestPath = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$", description="SHA-256, in hex")]

CampaignPath = Annotated[
    str,
    Path(
        pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$",
        description="name of a campaign",
        examples=["spring"],
    ),
]

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        description="the same request with the same key is done once, and answered the same (48 h)",
    ),
]
