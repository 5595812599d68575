"""What stands around a service: TLS of its own, a proxy that ends it, a repository behind a URL."""

import json
import socket
import ssl
import subprocess
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.e2e.command import osv, repository
from tests.service.running import SCRIPT, Running, events, served
from tests.service.servers import proxied, serving_git
from tests.service.tls import Certificate, certificate
from tests.waiting import PATIENCE_S

BODY = {"repository": "app", "advisory": json.loads(osv("idna", fixed="3.7"))}

PASSWORD = "correct horse battery"


@pytest.fixture
def tls(tmp_path: Path) -> Certificate:
    return certificate(tmp_path)


def client(address: str, tls: Certificate, **headers: str) -> httpx2.Client:
    """Trusts this certificate, and no other."""
    trusted = ssl.create_default_context(cafile=tls.chain)
    return httpx2.Client(base_url=address, verify=trusted, headers=headers, timeout=PATIENCE_S)


@pytest.mark.registry("uv")
@pytest.mark.sandbox
def test_a_fix_over_tls(tmp_path: Path, tls: Certificate) -> None:
    """Certificate and key as they are configured; in the clear there is no answer."""
    app = repository(tmp_path / "app", {"requirements.txt": "idna==3.6\n"})
    config = (
        f'[listen]\ntls_cert = "{tls.chain}"\ntls_key = "{tls.key}"\n[people]\nlocal = true\n'
        f'[repositories.app]\npath = "{app}"\n'
    )
    with served(tmp_path / "state", config) as service:
        assert service.address.startswith("https://127.0.0.1:")
        with client(service.address, tls, **{"X-API-Key": service.key}) as trusting:
            fix_id = trusting.post("/v1/fixes", json=BODY).json()["fix_id"]
            with trusting.stream("GET", f"/v1/fixes/{fix_id}/events") as answer:
                *_, last = events(answer.iter_lines())
            assert json.loads(last["data"])["outcome"] == "verified"
            assert "+idna==3.7" in trusting.get(f"/v1/fixes/{fix_id}/patch").text
        with httpx2.Client(timeout=PATIENCE_S) as strict, pytest.raises(httpx2.ConnectError):
            strict.get(f"{service.address}/health/live")
        with pytest.raises(httpx2.HTTPError):
            httpx2.get(service.address.replace("https", "http") + "/health/live")
        _hold_a_handshake(service)
        with client(service.address, tls) as again:
            assert again.get("/health/live").status_code == 200
            _sign_in_and_out(again, tmp_path / "state")


def _hold_a_handshake(service: Running) -> None:
    """Who says nothing in a handshake keeps nobody waiting."""
    url = httpx2.URL(service.address)
    for _ in range(20):
        socket.create_connection((url.host, url.port or 0), PATIENCE_S).close()


def _sign_in_and_out(browser: httpx2.Client, state: Path) -> None:
    subprocess.run(
        [SCRIPT, "keys", "person", "Ada", "--role", "read", "--state-dir", state],
        input=f"{PASSWORD}\n",
        text=True,
        check=True,
    )
    answer = browser.post("/v1/session", json={"name": "Ada", "password": PASSWORD})
    assert "secure" in answer.headers["set-cookie"].lower()
    assert browser.get("/v1/session").json()["name"] == "person:Ada"
    origin = {"Origin": str(browser.base_url).rstrip("/")}
    assert browser.delete("/v1/session", headers=origin).status_code == 204
    assert browser.get("/v1/session").status_code == 401


def test_a_proxy_that_is_trusted_says_who_comes_and_how(tmp_path: Path, tls: Certificate) -> None:
    """Limits count for the client that it names, whatever that client claims; cookies are for TLS."""
    config = (
        '[listen]\ntrusted_proxies = ["127.0.0.1"]\n[people]\nlocal = true\n'
        '[limits]\nfailed_sign_ins = "2/hour"\n'
    )
    state = tmp_path / "state"
    with (
        served(state, config) as service,
        proxied(service.address, tls, "192.0.2.1") as first,
        proxied(service.address, tls, "192.0.2.2") as second,
        client(first, tls) as guesser,
        client(second, tls) as other,
    ):
        tried = [_guess(guesser, f"198.51.100.{number}") for number in range(4)]
        assert tried == [401, 401, 429, 429]
        assert _guess(other, "192.0.2.1") == 401
        _sign_in_and_out(other, state)


def test_who_is_no_proxy_is_not_believed(tmp_path: Path) -> None:
    config = '[listen]\ntrusted_proxies = ["192.0.2.9"]\n[limits]\nfailed_sign_ins = "2/hour"\n'
    with served(tmp_path / "state", config) as service, service.client("") as guesser:
        tried = [_guess(guesser, f"198.51.100.{number}") for number in range(4)]
        assert tried == [401, 401, 429, 429]


def _guess(guesser: httpx2.Client, claimed: str) -> int:
    headers = {"X-API-Key": "ftk_wrong", "X-Forwarded-For": claimed}
    return guesser.get("/v1/fixes", headers=headers).status_code


@pytest.mark.registry("uv")
@pytest.mark.sandbox
def test_a_repository_behind_a_url(tmp_path: Path, tls: Certificate) -> None:
    """Mirrored from git's own HTTP backend; the next fix sees what was pushed since."""
    origin = repository(tmp_path / "origin" / "app", {"requirements.txt": "idna==3.6\n"})
    env = {"GIT_SSL_CAINFO": str(tls.chain)}
    with serving_git(tmp_path / "origin", tls) as address:
        often = '[limits]\nrequests_per_key = "100000/minute"\n'  # we ask and ask
        config = f'{often}[repositories.app]\nurl = "{address}/app/.git"\n'
        with served(tmp_path / "state", config, env=env) as service:
            first = _fixed(service)
            assert first["base_commit"] == _commit(origin)
            assert service.get("/v1/repositories")["repositories"][0]["is_remote"] is True
            attempt = service.post("/v1/attempts", BODY).json()
            assert "+idna==3.7" in attempt["application"]["diff"]
            (origin / "other.txt").write_text("pushed since\n")
            _git(origin, "add", "other.txt")
            _git(origin, "commit", "-m", "more")
            second = _fixed(service)
            assert second["base_commit"] == _commit(origin) != first["base_commit"]
    with served(tmp_path / "state", config, env=env, key=service.key) as alone:
        failed = alone.until_over(alone.post("/v1/fixes", BODY).json()["fix_id"])
        assert failed["state"] == "failed"
        assert "can't be fetched" in failed["problem"]["problem"]


def _fixed(service: Running) -> Any:
    ended = service.until_over(service.post("/v1/fixes", BODY).json()["fix_id"])
    assert (ended["state"], ended["outcome"]) == ("ended", "verified"), ended
    return ended


def _commit(place: Path) -> str:
    return _git(place, "rev-parse", "HEAD").strip()


def _git(place: Path, *words: str) -> str:
    who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    done = subprocess.run(
        ["git", *who, *words], cwd=place, capture_output=True, text=True, check=True
    )
    return done.stdout
