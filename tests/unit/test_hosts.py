"""Which addresses are of allowed hosts, and what a user's own settings name."""

import re
from pathlib import Path

import pytest

from fallback_tier.errors import ConfigurationError
from fallback_tier.hosts import ALLOW_HOST, Hosts, allowed_hosts, host_in, naming_file
from fallback_tier.sandbox.clients import SubprocessClients

HOSTS = Hosts(frozenset({"a.example:443", "b.example:8080", "c.example", "[::1]:80"}))


@pytest.mark.parametrize(
    "address",
    [
        "https://a.example",
        "https://a.example/simple/",
        "HTTPS://A.Example:443/x?y#z",
        "https://user:word@a.example/x",
        "http://b.example:8080/x",
        "https://c.example:9/x",
        "http://c.example/x",
        "http://[::1]/x",
    ],
)
def test_an_allowed_host_is_admitted(address: str) -> None:
    assert HOSTS.admits(address)


@pytest.mark.parametrize(
    "address",
    [
        "http://a.example/x",  # not the port that was allowed
        "https://a.example:8443/x",
        "https://b.example/x",
        "https://a.example.evil.example/x",
        "https://xa.example/x",
        "https://a.example@evil.example/x",
        "https://a.example:443@evil.example/x",
        "https://evil.example/@a.example",
        "https://evil.example#@a.example/",
        "https://evil.example?@a.example/",
        "https://evil.example\\@a.example/",
        "https:\\\\a.example/x",
        "https:a.example/x",
        "https:/a.example/x",
        "https:///a.example/x",
        "//a.example/x",
        "a.example/x",
        "https://a.example\t.evil.example/x",
        "https://a.example\n.evil.example/x",
        "https://a.example,x.evil.example/x",
        "https://a.example;x.evil.example/x",
        "https://a.example'x.evil.example/x",
        "https://a.example%2eevil.example/x",
        "https://a.example. /x",
        "https://a..example/x",
        "https://a\u3002example/x",
        "https://\uff41.example/x",
        " https://a.example/x",
        "https://a.example/x y",
        "git+https://a.example/x",
        "ftp://a.example/x",
        "file://a.example/x",
        "https://",
        "",
    ],
)
def test_any_other_is_not(address: str) -> None:
    assert not HOSTS.admits(address)


def test_what_a_users_settings_name_is_allowed(tmp_path: Path) -> None:
    settings = {
        "npmrc": "registry=https://one.example/npm/\n; registry=https://no.example/\n"
        "//two.example:81/:_authToken=x\n@s:registry=http://three.example:4873\n"
        "@my-proxy:registry=https://eleven.example\nproxy=http://proxy.example:3128\nnoproxy=https://no.example\n",
        "uv.toml": '[[index]]\nurl = "https://user@four.example/simple"\n# url = "https://no.example"\n',
        "pip.conf": "[global]\nextra-index-url =\n    https://five.example/simple file:///no/simple\n",
        "yarnrc": 'registry "https://six.example"\nhttps-proxy "http://proxy.example:3129"\n',
    }
    for name, text in settings.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "moved").write_text("registry=https://seven.example\n")
    variables = {
        "UV_INDEX": "corp=https://eight.example/a https://nine.example:1/b",
        "npm_config_userconfig": str(tmp_path / "moved"),
        "HTTPS_PROXY": "proxy.example:3130",
    }
    paths = [*(tmp_path / name for name in settings), tmp_path / "missing", tmp_path]
    hosts = Hosts.of_user(paths, variables, ("ten.example",))
    named = {"one.example:443", "two.example:81", "three.example:4873", "four.example:443"}
    named |= {"five.example:443", "six.example:443", "seven.example:443", "eight.example:443"}
    assert hosts.allowed == {*named, "nine.example:1", "ten.example", "eleven.example:443"}
    assert hosts.proxies == {f"proxy.example:{port}" for port in (3128, 3129, 3130)}


def test_a_netrc_allows_nothing(tmp_path: Path) -> None:
    """Credentials for a host are no word that it may be asked."""
    (tmp_path / ".netrc").write_text("machine evil.example login a password b\n")
    clients = SubprocessClients({"HOME": str(tmp_path), "NETRC": str(tmp_path / ".netrc")})
    assert not any("evil" in host for host in clients.allowed_hosts(["npm", "node", "uv"]))


@pytest.mark.parametrize("text", ["", "a", "a:1", "a.example:443, [::1]:80", "127.0.0.1"])
def test_hosts_of_a_person_are_read(text: str) -> None:
    assert allowed_hosts(text) == tuple(text.replace(",", " ").split())


@pytest.mark.parametrize("text", ["http://a", "a:", "a:x", "a/b", "-a", "a:123456", "*", "a@b"])
def test_what_is_no_host_is_refused_and_named(text: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(repr(text))} "):
        allowed_hosts(text)
    with pytest.raises(ConfigurationError, match=ALLOW_HOST):
        SubprocessClients({ALLOW_HOST: text})


def test_a_message_has_no_credentials() -> None:
    assert host_in("https://user:word@a.example/x") == "a.example"
    assert host_in("http://a.example:8080/x") == "a.example:8080"
    assert "word" not in host_in("git+ssh://user:word@a.example/x")
    assert "word" not in host_in("http:\\\\user:word@a.example/x")


def test_the_file_that_names_a_host_is_found(tmp_path: Path) -> None:
    (tmp_path / "packages" / "one").mkdir(parents=True)
    (tmp_path / "packages" / "one" / "package.json").write_text('{"x": "http://a.example:1/x"}')
    assert naming_file("a.example:1", tmp_path) == "packages/one/package.json"
    assert naming_file("b.example", tmp_path) == ""
