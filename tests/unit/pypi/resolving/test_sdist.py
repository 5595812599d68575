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
from fallback_plugins.pypi.resolving.registry import ReleaseFile, sdist_requirements, sdists_of
from tests.fakes.endless import serving
from tests.registry import Universe, serve

REQUIRES = """one>=1

[extra]
two

[:python_version >= '3']
three

[extra:python_version >= '3']
four; os_name == 'nt'
"""
PLACE = "it-1.0/src/it.egg-info/requires.txt"


def tarred(name: str = PLACE, text: str = REQUIRES) -> bytes:
    return packed({name.removeprefix("it-1.0/"): text})


def packed(files: dict[str, str]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(f"it-1.0/{name}")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    return content.getvalue()


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
def test_what_is_required_with_its_conditions(
    given: Callable[[bytes], ReleaseFile], content: bytes
) -> None:
    assert sdist_requirements(given(content)) == (
        "Requires-Dist: one>=1",
        "Provides-Extra: extra",
        "Requires-Dist: two ; (extra == 'extra')",
        'Requires-Dist: three ; (python_version >= "3")',
        "Provides-Extra: extra",
        'Requires-Dist: four ; (os_name == "nt") and (python_version >= "3") and (extra == \'extra\')',
    )


@pytest.mark.parametrize(
    "text", ["not a requirement!", "[:not a marker]\none", "one @ https://127.0.0.1/one.zip"]
)
def test_a_line_that_can_not_be_read_leaves_all_unknown(
    given: Callable[[bytes], ReleaseFile], text: str
) -> None:
    assert sdist_requirements(given(tarred(text=f"one\n{text}\n"))) is None


DISTUTILS = """from distutils.core import Extension, setup
about = dict(name="it", version="1.0", description=open("README").read())
def run(fast):
    words = dict(about)
    if fast:
        words["ext_modules"] = [Extension("it._fast", ["it.c"])]
    setup(**words)
run(True)
"""
POETRY = """from setuptools import setup
install_requires = ["one>=1", "two ; python_version < '3'"]
extras_require = {"more": ["three"]}
setup_kwargs = {"name": "it", "install_requires": install_requires, "extras_require": extras_require}
setup(**setup_kwargs)
"""
FLIT = """Metadata-Version: 2.1
Name: it
Requires-Dist: one>=1
Requires-Dist: two ; extra == "more"
Provides-Extra: more
"""
HATCH = "Metadata-Version: 2.4\nName: it\n"
OTHERS = "tests/data/other.egg-info/requires.txt"


@pytest.mark.parametrize(
    ("files", "required"),
    [
        ({"setup.py": DISTUTILS, "PKG-INFO": "Metadata-Version: 1.1\nName: it\n"}, ()),
        (
            {"setup.py": POETRY},
            (
                "Requires-Dist: one>=1",
                'Requires-Dist: two ; (python_version < "3")',
                "Provides-Extra: more",
                "Requires-Dist: three ; (extra == 'more')",
            ),
        ),
        (
            {"PKG-INFO": FLIT, "setup.py": "made()", "pyproject.toml": ""},
            (
                "Provides-Extra: more",
                "Requires-Dist: one>=1",
                'Requires-Dist: two; extra == "more"',
            ),
        ),
        ({"PKG-INFO": HATCH, "pyproject.toml": "[project]", OTHERS: "one"}, ()),
    ],
    ids=["distutils", "poetry", "flit", "hatch"],
)
def test_an_archive_that_setuptools_did_not_make(
    given: Callable[[bytes], ReleaseFile], files: dict[str, str], required: tuple[str, ...]
) -> None:
    assert sdist_requirements(given(packed(files))) == required


def script(more: str, *, before: str = "") -> dict[str, str]:
    return {"setup.py": f"from setuptools import setup\n{before}\nsetup(name='it', {more})\n"}


@pytest.mark.parametrize(
    "files",
    [
        {"setup.py": "from helper import made\nmade()\n"},
        script("**computed()"),
        script("**{**computed(), 'version': '1'}"),
        script("**words", before="words = {}\nwords.update(computed())"),
        script("install_requires=ask()"),
        script("install_requires=['one', x]"),
        script("extras_require={'x': ['one', y]}"),
        script("install_requires=needs", before="needs = ['one']\nneeds, rest = split()"),
        script("install_requires=needs", before="needs = []\nfrom helper import needs"),
        script("**w", before="w = {'install_requires': []}\nw['install_requires'].append('one')"),
        script("install_requires=[]", before="setup(name='it', install_requires=['one'])"),
        script("", before="exec(open('it.py').read())"),
        script("") | {"setup.cfg": "[options]\ninstall_requires = file: r.txt\n"},
        script("") | {"pyproject.toml": "[project]\n"},
        {"setup.py": "print 'a Python of then'\n"},
        {"PKG-INFO": HATCH + "Dynamic: Requires-Dist\n", "pyproject.toml": "[project]"},
        {OTHERS: "one"},
    ],
)
def test_an_archive_that_computes_what_it_requires(
    given: Callable[[bytes], ReleaseFile], files: dict[str, str]
) -> None:
    assert sdist_requirements(given(packed(files))) is None


def test_releases_without_a_wheel_of_a_page() -> None:
    universe = Universe()
    universe.pypi("it", "1.0").pypi("it", "2.0", sdist_only=True, requires_python=">=3.8")
    universe.pypi("it", "3.0", sdist_only=True, yanked="bad")
    universe.pypi("it", "4.0", tag="cp38-cp38-win32").pypi("it", "5.0", tag="cp312-abi3-win32")
    universe.pypi("it", "1.0", sdist_only=True).pypi("it", "4.0", sdist_only=True)
    with serve(universe) as registry:
        found = sdists_of(registry.pypi_url, "it", "3.9") or ()
        assert [(it.version, it.requires_python) for it in found] == [("2.0", ">=3.8"), ("4.0", "")]
        again = sdists_of(registry.pypi_url, "it", "3.8") or ()
        assert [it.version for it in again] == ["2.0"]
        assert sdist_requirements(found[0].file) is None
        assert "Requires-Python: >=3.8\n" in found[0].stub(())
        assert sdists_of(registry.pypi_url, "gone", "3.9") is None
    assert sdists_of("http://registry.invalid/simple", "it", "3.9") is None


@pytest.mark.parametrize(
    ("page", "versions"),
    [
        (b"<html><a href='/login'>Log in</a></html>", None),
        (b'{"files": []}', None),
        (
            b'{"files": [{"url": "it-1.0.tar.gz"}, {"url": "it-2.0.tar.gz", "yanked": "bad"}]}',
            ["1.0"],
        ),
    ],
)
def test_a_page_in_json_or_for_people(page: bytes, versions: list[str] | None) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(page)
    with serving(head + page) as server:
        found = sdists_of(server.url, "it", "3.9")
    assert (None if found is None else [it.version for it in found]) == versions


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
    assert sdist_requirements(given(made())) is None


def test_another_file_than_the_listing_names_is_not_read(
    given: Callable[[bytes], ReleaseFile],
) -> None:
    file = given(tarred())
    other = ReleaseFile(file.name, "sha256:" + "0" * 64, file.url)
    assert sdist_requirements(other) is None
    assert sdist_requirements(ReleaseFile(file.name, file.hash, "file:///etc/passwd")) is None


def test_a_registry_that_does_not_give_it() -> None:
    with serve(Universe()) as registry:
        file = ReleaseFile("it-1.0.tar.gz", "sha256:0", f"{registry.url}/nothing/it-1.0.tar.gz")
        assert sdist_requirements(file) is None
