"""What the service runs with, and where each setting comes from. Nothing can be changed here."""

from collections.abc import Iterator
from typing import NamedTuple

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel

from fallback_tier.portal.routing import PREFIX, PageRoute, Reader, page
from fallback_tier.service.http.given import TheService
from fallback_tier.service.settings import Secrets

router = APIRouter(prefix=PREFIX, route_class=PageRoute, include_in_schema=False)

_GIVEN = "file or option"

#: A number, and no amount.
_PORT = "port"


class Setting(NamedTuple):
    """One line. ``source``: where its value is from."""

    name: str
    value: str
    source: str
    about: str


@router.get("/settings")
def settings(request: Request, service: TheService, who: Reader) -> Response:
    """By table."""
    found = list(_settings(service.settings))
    tables: dict[str, list[Setting]] = {}
    for one in found:
        tables.setdefault(one.name.rpartition(".")[0] or "service", []).append(one)
    return page(
        "settings.html",
        request,
        who,
        tables=tables,
        secrets=list(_secrets(service.secrets)),
        state_dir=str(service.state_dir),
    )


def _settings(table: BaseModel, prefix: str = "") -> Iterator[Setting]:
    for name, field in type(table).model_fields.items():
        value = getattr(table, name)
        full = f"{prefix}{name}"
        if isinstance(value, BaseModel):
            yield from _settings(value, f"{full}.")
        elif isinstance(value, dict):
            for key, one in value.items():
                if isinstance(one, BaseModel):
                    yield from _settings(one, f"{full}.{key}.")
                else:
                    yield Setting(f"{full}.{key}", _shown(one), _GIVEN, field.description or "")
        else:
            default = field.get_default(call_default_factory=True, validated_data={})
            source = "default" if value == default else _GIVEN
            yield Setting(
                full,
                str(value) if name == _PORT else _shown(value),
                source,
                field.description or "",
            )


def _secrets(secrets: Secrets) -> Iterator[Setting]:
    """That they are there, never what they are."""
    for name, value in secrets:
        yield Setting(name, "not set" if value is None else "set, not shown", "environment", "")


def _shown(value: object) -> str:
    if value is None:
        return "—"
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool):  # as the file spells it
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"{value:,}" if isinstance(value, int | float) else str(value)
