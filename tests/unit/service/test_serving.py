"""Where the service listens, and where it refuses to."""

import socket
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from fallback_tier.errors import ConfigurationError, StateFolderError
from fallback_tier.service import serving
from fallback_tier.service.serving import bound, check_listening, first_key, is_loopback
from fallback_tier.service.settings import Listening
from tests.kinds import OfKind
from tests.service.scenario import service_scenario


def test_a_start_without_an_admins_key_makes_one(tmp_path: Path) -> None:
    """Each has a name of its own, so that the record tells its holders apart."""
    with service_scenario(tmp_path) as opened:
        first = first_key(opened.service)
        assert first is not None
        assert first_key(opened.service) is None
        opened.service.keys.revoke(first.record.key_id)
        second = first_key(opened.service)
        assert second is not None
        assert (first.record.name, second.record.name) == ("first-admin", "first-admin-2")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.3.2.1", "::1", "localhost"])
def test_this_machine_alone_needs_nothing(host: str) -> None:
    assert is_loopback(host)
    check_listening(Listening(host=host))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_elsewhere_keys_would_be_sent_in_the_clear(host: str, tmp_path: Path) -> None:
    assert not is_loopback(host)
    with pytest.raises(ConfigurationError, check=OfKind("no_tls")) as refused:
        check_listening(Listening(host=host))
    assert "trusted_proxies" in refused.value.next_step
    check_listening(Listening(host=host, trusted_proxies=("192.0.2.7",)))
    (cert := tmp_path / "cert.pem").touch()
    check_listening(Listening(host=host, tls_cert=cert, tls_key=cert))
    with pytest.raises(
        ConfigurationError, check=OfKind("no_such_file"), match=r"\blisten\.tls_key\b"
    ):
        check_listening(Listening(host=host, tls_cert=cert, tls_key=tmp_path / "none"))


def test_answers_do_not_wait_for_each_other() -> None:
    """asyncio sets TCP_NODELAY where a socket says that it is TCP."""
    with bound(Listening(port=0)) as place:
        assert place.proto == socket.IPPROTO_TCP


def test_an_address_that_is_taken_is_said() -> None:
    with bound(Listening(port=0)) as place:
        place.listen()
        port = place.getsockname()[1]
        with pytest.raises(
            StateFolderError, check=OfKind("not_listening"), match=f"127.0.0.1:{port}"
        ):
            bound(Listening(port=port))


class FarEnoughError(Exception):
    """Nothing listens in this test."""


def test_an_observer_starts_once_the_application_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """Building looks at every object there is; what another thread is making then comes to an error."""
    done: list[str] = []
    for name in ("check_listening", "room_for", "timed_protocol"):
        monkeypatch.setattr(serving, name, lambda *_: None)
    monkeypatch.setattr(serving, "create_app", lambda *_, **__: done.append("built"))
    monkeypatch.setattr("uvicorn.Config", MagicMock(side_effect=FarEnoughError))
    observer = MagicMock(start=lambda: done.append("started"))
    with pytest.raises(FarEnoughError):
        serving.serve(MagicMock(), print, observer=observer)
    assert done == ["built", "started"]
