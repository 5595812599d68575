"""serve.toml: every setting has a default or a reason; what can't be is named."""

from pathlib import Path

import pytest

from fallback_tier.errors import ConfigurationError
from fallback_tier.service.settings import LOOPBACK, MAX_CONFIG_BYTES, parse_settings, read_settings
from tests.kinds import OfKind

WHOLE = """
state_dir = "/var/lib/fallback-tier"
[listen]
host = "0.0.0.0"
tls_cert = "/etc/tls/cert.pem"
tls_key = "/etc/tls/key.pem"
[limits]
concurrent_fixes = 4
[repositories.app]
path = "/srv/git/app"
ref = "main"
[[repositories.app.gates]]
name = "wait"
command = ["sleep", "4"]
[repositories.web]
url = "https://git.example.org/web.git"
"""


def test_nothing_given_is_this_machine_alone() -> None:
    settings = read_settings(None)
    assert settings.listen.host == LOOPBACK
    assert settings.repositories == {}


def test_a_whole_file() -> None:
    settings = parse_settings(WHOLE, "serve.toml")
    assert settings.limits.concurrent_fixes == 4
    gates = settings.repositories["app"].gates
    assert gates is not None
    assert gates[0].command == ("sleep", "4")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x =", "is not TOML"),
        ("[listne]\nport = 1", "listne: Extra inputs"),
        ("[listen]\nport = 70000", "listen.port"),
        ('[listen]\ntls_cert = "c.pem"', "belong together"),
        ("[repositories.app]", "give path or url"),
        ('[repositories.app]\npath = "app"', "is not absolute"),
        ('[repositories.app]\nurl = "file:///etc"', "begins with https:// or ssh://"),
        ('[repositories.app]\nurl = "https://a:b@c/d"', "has a password in it"),
        ('[repositories.app]\npath = "/a"\nref = "--upload-pack=x"', "repositories.app.ref"),
        ('[repositories."../x"]\npath = "/a"', "repositories.../x"),
        ('[repositories.app]\npath = "/a"\n[[repositories.app.gates]]\nname = "a"', "command"),
        ('[listen]\ntrusted_proxies = ["*"]', "does not appear to be an IPv4 or IPv6 network"),
        ('[listen]\ntrusted_proxies = ["0.0.0.0/0"]', "is everybody"),
        ("[limits]\nfix_s = inf", "limits.fix_s"),
    ],
)
def test_what_can_not_be_is_named(text: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        parse_settings(text, "serve.toml")
    assert says in error.value.problem
    assert "--config serve.toml" in error.value.problem


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, check=OfKind("unreadable"), match="No such file"):
        read_settings(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b"# \xe4")
    with pytest.raises(ConfigurationError, check=OfKind("unreadable"), match="UTF-8"):
        read_settings(tmp_path / "latin.toml")


def test_a_file_that_is_too_large_is_not_read_in_part(tmp_path: Path) -> None:
    """What stands behind the limit may be a limit of the service."""
    path = tmp_path / "large.toml"
    path.write_text("#" * (MAX_CONFIG_BYTES - 1) + "\n[limits]\nconcurrent_fixes = 4\n", "utf-8")
    with pytest.raises(ConfigurationError, check=OfKind("too_large")):
        read_settings(path)
    path.write_text("#" * (MAX_CONFIG_BYTES - 1) + "\n", "utf-8")
    assert read_settings(path).limits.concurrent_fixes != 4
