"""Sign-in of people at an OpenID Connect issuer, by authlib, with PKCE; state and nonce are in the
session.
"""

from typing import Any
from urllib.parse import urlsplit

import httpx2
from authlib.integrations.starlette_client import OAuth, OAuthError
from fastapi import Request
from joserfc.errors import JoseError
from pydantic import SecretStr
from starlette.responses import Response

from fallback_tier.service.people import MAX_NAME_CHARS
from fallback_tier.service.refusals import BusyError, NotAllowedError, NotSignedInError
from fallback_tier.service.roles import Role
from fallback_tier.service.settings import OidcSettings

CALLBACK = "/v1/session/oidc/callback"

#: Time limit of one response of the issuer.
_TIMEOUT_S = 10.0

#: Longest text of the issuer in an error message.
_SAID_CHARS = 200


class Oidc:
    """One issuer."""

    def __init__(self, settings: OidcSettings, secret: SecretStr | None) -> None:
        self._settings = settings
        self.issuer = issuer = settings.issuer.rstrip("/")
        oauth = OAuth()
        self._client: Any = oauth.register(
            "issuer",
            server_metadata_url=f"{issuer}/.well-known/openid-configuration",
            client_id=settings.client_id,
            client_secret=None if secret is None else secret.get_secret_value(),
            client_kwargs={
                "scope": "openid email profile",
                "code_challenge_method": "S256",
                "timeout": _TIMEOUT_S,
            },
        )

    @property
    def host(self) -> str:
        """Return the issuer's host, as people know it."""
        return urlsplit(self._settings.issuer).netloc

    async def begin(self, request: Request) -> Response:
        """Redirect to the issuer. Raises BusyError if it can't be reached."""
        try:
            callback_url = self._settings.public_url.rstrip("/") + CALLBACK
            response: Response = await self._client.authorize_redirect(request, callback_url)
        except (httpx2.HTTPError, ValueError, KeyError, RuntimeError) as error:
            raise _unreachable(error) from error
        return response

    async def end(self, request: Request) -> tuple[str, frozenset[Role]]:
        """Return name and roles of a person who came back.

        Raises NotSignedInError if the issuer's response is not accepted; NotAllowedError if none of the
        person's groups has a role here; BusyError.
        """
        expected = {"iss": {"essential": True, "values": [self._settings.issuer]}}
        try:
            token = await self._client.authorize_access_token(request, claims_options=expected)
        except (OAuthError, JoseError) as error:
            raise _not_believed(str(error)) from error
        except (httpx2.HTTPError, ValueError, KeyError, RuntimeError) as error:
            raise _unreachable(error) from error
        claims = token.get("userinfo")
        if not claims:
            raise _not_believed("it gave no ID token")
        return self._named(claims), self._roles(claims)

    def _named(self, claims: dict[str, Any]) -> str:
        claim = self._settings.name_claim
        name = claims.get(claim)
        if (
            not isinstance(name, str)
            or not name.isprintable()
            or not 0 < len(name) <= MAX_NAME_CHARS
        ):
            raise _not_believed(f"it gave no name in {claim!r}")
        if claim == "email" and claims.get("email_verified") in (False, "false"):
            raise _not_believed("it has not verified this address")
        return name

    def _roles(self, claims: dict[str, Any]) -> frozenset[Role]:
        value = claims.get(self._settings.roles_claim)
        groups = [value] if isinstance(value, str) else value if isinstance(value, list) else []
        roles_by_group = self._settings.roles
        roles = {
            role
            for group in groups
            if isinstance(group, str)
            for role in roles_by_group.get(group, ())
        }
        if not roles:
            raise NotAllowedError(
                "You have signed in, and none of your groups has a role here.",
                next_step="An admin can add one to people.oidc.roles.",
            )
        return frozenset(roles)


def _not_believed(why: str) -> NotSignedInError:
    reason = " ".join(why.split())[:_SAID_CHARS]
    return NotSignedInError(
        f"The issuer's answer is not to be believed: {reason}.", next_step="Sign in again."
    )


def _unreachable(error: Exception) -> BusyError:
    reason = " ".join(f"{type(error).__name__}: {error}".split())[:_SAID_CHARS]
    return BusyError(
        f"The issuer can't be asked: {reason}.",
        next_step="Try again; if that doesn't help, look at people.oidc of the configuration.",
    )
