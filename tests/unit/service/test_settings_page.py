"""docs/service-configuration.md is made of the settings' model.

``pytest tests/unit/service/test_settings_page.py --refresh-settings`` writes it anew.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from fallback_tier.service.settings import ServiceSettings

PAGE = Path(__file__).parents[3] / "docs" / "service-configuration.md"

HEAD = """\
# The service's configuration

What `fallback-tier serve --config FILE` reads: TOML. Everything has a default but repositories,
without which there is nothing to submit. An option of the command counts before the same setting
here; keys and passwords are in the environment and never in this file (`ANTHROPIC_API_KEY`,
`FALLBACK_TIER_API_KEY`, `FALLBACK_TIER_JUDGE_API_KEY`, `FALLBACK_TIER_AUDIT_STORE`,
`FALLBACK_TIER_FLEET_STORE`, `FALLBACK_TIER_OIDC_SECRET`).
How it is used: [service.md](service.md).

This page is made of the settings' model
(`pytest tests/unit/service/test_settings_page.py --refresh-settings`).
"""


def below(field: FieldInfo) -> tuple[type[BaseModel], str] | None:
    """The table that a setting is, and what its name is followed by."""
    kinds = [field.annotation, *get_args(field.annotation)]
    kinds += [inner for kind in kinds for inner in get_args(kind)]
    for kind in kinds:
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            whole = str(field.annotation)
            return kind, ".NAME" if whole.startswith("dict") else ""
    return None


def tables(model: type[BaseModel], name: str = "") -> Iterator[str]:
    own, inner = [], []
    for key, field in model.model_fields.items():
        full = f"{name}.{key}" if name else key
        table = below(field)
        if table is None or key == "gates":
            own.append(f"| `{key}` | {default(field)} | {field.description} |")
        else:
            inner += tables(table[0], full + table[1])
    if own:
        words = " ".join((model.__doc__ or "").split())
        head = f"## `[{name}]`" if name else "## At the top"
        yield (
            f"\n{head}\n\n{words}\n\n| setting | default | what it is |\n|---|---|---|\n"
            + "\n".join(own)
        )
    yield from inner


def default(field: FieldInfo) -> str:
    if field.is_required():
        return "must be given"
    value: Any = field.get_default(call_default_factory=True, validated_data={})
    match value:
        case None | () | {}:
            return ""
        case bool():
            return f"`{str(value).lower()}`"
        case float() | int():
            return f"`{value:g}`" if value < 1e6 else f"`{value:_.0f}`"
        case _:
            return f'`"{value}"`'


def page() -> str:
    return HEAD + "\n".join(tables(ServiceSettings)) + "\n"


def test_the_page_is_the_model(pytestconfig: pytest.Config) -> None:
    if pytestconfig.getoption("refresh_settings"):
        PAGE.write_text(page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page(), "run this test with --refresh-settings"


def test_every_setting_is_described() -> None:
    text = page()
    for table in ("listen", "limits", "repositories.NAME", "people.oidc", "budget"):
        assert f"## `[{table}]`" in text
    assert not [line for line in text.splitlines() if line.endswith("|  |")]
