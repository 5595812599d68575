"""The settings of the service, and where each comes from. Nothing can be changed here."""

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

#: Name of a setting that is a number but not an amount.
_PORT = "port"


class Setting(NamedTuple):
    """One line. ``source``: where its value comes from."""

    name: str
    value: str
    source: str
    about: str


@router.get("/settings")
def settings(request: Request, service: TheService, who: Reader) -> Response:
    """Return the settings by table."""
    all_settings = list(_settings(service.settings))
    tables: dict[str, list[Setting]] = {}
    for setting in all_settings:
        tables.setdefault(setting.name.rpartition(".")[0] or "service", []).append(setting)
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
        full_name = f"{prefix}{name}"
        if isinstance(value, BaseModel):
            yield from _settings(value, f"{full_name}.")
        elif isinstance(value, dict):
            for key, item in value.items():
                if isinstance(item, BaseModel):
                    yield from _settings(item, f"{full_name}.{key}.")
                else:
                    yield Setting(
                        f"{full_name}.{key}", _shown(item), _GIVEN, field.description or ""
                    )
        else:
            default = field.get_default(call_default_factory=True, validated_data={})
            source = "default" if value == default else _GIVEN
            yield Setting(
                full_name,
                str(value) if name == _PORT else _shown(value),
                source,
                field.description or "",
            )


def _secrets(secrets: Secrets) -> Iterator[Setting]:
    """Yield which secrets are set, never their values."""
    for name, value in secrets:
        yield Setting(name, "not set" if value is None else "set, not shown", "environment", "")


def _shown(value: object) -> str:
    if value is None:
        return "—"
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool):  # as in the file
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"{value:,}" if isinstance(value, int | float) else str(value)
