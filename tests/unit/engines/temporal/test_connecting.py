"""Where the cluster is, and with which certificates."""

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("temporalio", reason="the extra `temporal` is not installed")

from temporalio.service import TLSConfig

from fallback_tier.engines.temporal.client import FixWorkflows
from fallback_tier.engines.temporal.connecting import Cluster, EngineUnreachableError, connect
from fallback_tier.errors import ConfigurationError
from tests.kinds import OfKind


def test_loopback_needs_no_certificates() -> None:
    assert Cluster().tls() is False


def test_files_are_read(tmp_path: Path) -> None:
    for name in ("ca", "cert", "key"):
        (tmp_path / name).write_text(name)
    tls = Cluster(
        ca=tmp_path / "ca", cert=tmp_path / "cert", key=tmp_path / "key", server_name="temporal"
    ).tls()
    assert tls == TLSConfig(
        server_root_ca_cert=b"ca",
        domain="temporal",
        client_cert=b"cert",
        client_private_key=b"key",
    )


def test_a_certificate_without_its_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, check=OfKind("half_a_certificate")):
        Cluster(cert=tmp_path / "cert").tls()


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, check=OfKind("unreadable"), match=r"absent\.pem"):
        Cluster(ca=tmp_path / "absent.pem").tls()


def test_a_cluster_that_is_not_there_is_named_with_what_to_do() -> None:
    nowhere = Cluster(address="127.0.0.1:1")
    with pytest.raises(
        EngineUnreachableError, check=OfKind("unreachable"), match=r"127\.0\.0\.1:1"
    ) as refused:
        asyncio.run(connect(nowhere))
    assert "fleet dev" in refused.value.next_step
    workflows = FixWorkflows(nowhere)
    try:
        with pytest.raises(EngineUnreachableError):
            workflows.state("fix-1")
    finally:
        workflows.close()
