"""Talking to what is outside."""

import errno
import socket
import struct

from tests.campaigns.hostile.escapes.base import Facts, ShutError, escape


@escape
def loopback_server(facts: Facts) -> None:
    socket.create_connection(("127.0.0.1", facts["port"]), timeout=5).close()


@escape
def loopback_datagram(facts: Facts) -> None:
    """The sandbox's own loopback takes it; nobody of the machine's may hear it."""
    if socket.if_nameindex() == [(1, "lo")]:
        raise ShutError


@escape
def abstract_socket(facts: Facts) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("\0" + facts["abstract"])


@escape
def socket_by_path(facts: Facts) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(facts["socket"])


def _socket(family: int, kind: int, protocol: int = 0) -> None:
    socket.socket(family, kind, protocol).close()


@escape
def hypervisor_socket(facts: Facts) -> None:
    _socket(socket.AF_VSOCK, socket.SOCK_STREAM)


@escape
def packet_socket(facts: Facts) -> None:
    _socket(socket.AF_PACKET, socket.SOCK_RAW)


@escape
def raw_socket(facts: Facts) -> None:
    _socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)


@escape
def kernel_crypto_socket(facts: Facts) -> None:
    _socket(socket.AF_ALG, socket.SOCK_SEQPACKET)


@escape
def network_configuration(facts: Facts) -> None:
    """RTM_DELLINK of an interface that nobody has: who may, learns that it is not there."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as netlink:
        body = struct.pack("BxHiII", 0, 0, 0x7FFFFFF0, 0, 0)
        netlink.send(struct.pack("IHHII", 16 + len(body), 17, 5, 1, 0) + body)
        error = -struct.unpack_from("i", netlink.recv(4096), 16)[0]
    if error in {errno.EPERM, errno.EACCES}:
        raise ShutError
