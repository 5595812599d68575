"""What an archive of source says that it requires: read, bounded, never run."""

import gzip
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from fallback_plugins.pypi import archives
from fallback_plugins.pypi.resolving import sdist
from fallback_plugins.pypi.resolving.scratch_lock import ReleaseFile
from tests.fakes.endless import serving
from tests.registry import Universe, serve

REQUIRES = """one>=1

[extra]
two

[:python_version >= '3']
three

[extra:python_version >= '3']
four
not a requirement!
"""
PLACE = "it-1.0/src/it.egg-info/requires.txt"


def tarred(name: str = PLACE, text: str = REQUIRES) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        info = tarfile.TarInfo(name)
        info.size = len(text)
        archive.addfile(info, io.BytesIO(text.encode()))
    return packed.getvalue()


def zipped() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(PLACE, REQUIRES)
    return packed.getvalue()


@pytest.fixture
def given() -> Iterator[Callable[[bytes], ReleaseFile]]:
    """A file of a release with this content, as it is fetched."""
    with ExitStack() as servers:

        def served(content: bytes) -> ReleaseFile:
            head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(content)
            server = servers.enter_context(serving(head + content))
            digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
            return ReleaseFile("it-1.0.tar.gz", digest, f"{server.url}/it-1.0.tar.gz")

        yield served


@pytest.mark.parametrize("content", [tarred(), zipped()], ids=["tar", "zip"])
def test_what_is_required_here_without_extras(
    given: Callable[[bytes], ReleaseFile], content: bytes
) -> None:
    found = sdist.sdist_requirements(given(content))
    assert found is not None
    assert [str(one) for one in found] == ["one>=1", "three"]


@pytest.mark.parametrize(
    "made",
    [
        lambda: b"",
        lambda: b"no archive",
        lambda: tarred()[:40],
        lambda: tarred("it-1.0/setup.py"),
        lambda: gzip.compress(b"\0" * (archives.MAX_UNPACKED_BYTES + 1), compresslevel=1),
        lambda: b"\0" * (archives.MAX_ARCHIVE_BYTES + 1),
    ],
    ids=["empty", "text", "cut", "silent", "bomb", "large"],
)
def test_what_does_not_tell(
    given: Callable[[bytes], ReleaseFile], made: Callable[[], bytes]
) -> None:
    """Made by the test: a bomb takes its time, and every worker that collects would make one."""
    assert sdist.sdist_requirements(given(made())) is None


def test_another_file_than_the_listing_names_is_not_read(
    given: Callable[[bytes], ReleaseFile],
) -> None:
    file = given(tarred())
    other = ReleaseFile(file.name, "sha256:" + "0" * 64, file.url)
    assert sdist.sdist_requirements(other) is None
    assert sdist.sdist_requirements(ReleaseFile(file.name, file.hash, "file:///etc/passwd")) is None


def test_a_registry_that_does_not_give_it() -> None:
    with serve(Universe()) as registry:
        file = ReleaseFile("it-1.0.tar.gz", "sha256:0", f"{registry.url}/nothing/it-1.0.tar.gz")
        assert sdist.sdist_requirements(file) is None
