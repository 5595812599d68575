"""Arguments of bubblewrap: the namespaces, the file system and the environment of a command."""

import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from fallback_tier.files.tree import FileTree

#: /tmp and /dev/shm are in memory.
MAX_TMPFS_BYTES = 512 * 1024 * 1024

#: Read-only parts of the system. Of /etc only what name lookup, users, certificates and the loader need:
#: /etc also holds keys and passwords. Single files are copied in, because to bind one bubblewrap reads its
#: whole mount table, which took a third of a sandbox's start.
_SYSTEM_OR_LINKS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC_FOLDERS = ("alternatives", "pki/tls/certs", "ssl/certs")
_ETC_FILES = (
    "group", "host.conf", "ld.so.cache", "localtime", "mime.types", "nsswitch.conf",
    "os-release", "passwd", "protocols", "services", "ssl/openssl.cnf",
)  # fmt: skip

_HOSTNAME = "sandbox"
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,62}")

#: For the loopback network. `localhost` is one address, as on common CI machines: otherwise a server that
#: listens on one address and a client that tries the other would miss each other.
_HOSTS = f"127.0.0.1 localhost {_HOSTNAME}\n::1 ip6-localhost ip6-loopback\n"

#: The user that root becomes inside if a command starts servers: some refuse to run as root.
_USER_ID = 1000
_USERS = f"root:x:0:0:root:/root:/bin/sh\nuser:x:{_USER_ID}:{_USER_ID}:user:/tmp/home:/bin/sh\n"

#: Folders that a command may write in addition to its worktree: all in memory.
SCRATCH = ("/tmp", "/dev")  # noqa: S108 (the sandbox's own)

HOME = "/tmp/home"  # noqa: S108 (inside the sandbox, on its private tmpfs)


def find_interpreters() -> tuple[Path, ...]:
    """Return our own base interpreter, and node if there is one: real paths, links resolved."""
    node = shutil.which("node")
    python = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    return tuple(path.resolve() for path in (python, *([Path(node)] if node else [])))


def target_environment(
    home: str, interpreters: Sequence[Path], extra: Mapping[str, str] | None
) -> dict[str, str]:
    """Return all variables of a target's command, fixed so that one failure gives one log.

    NO_COLOR is not among them, because a project's CI does not set it: colours are removed from the output
    (``runners``).
    """
    folders = [str(path.parent) for path in interpreters]
    folders += ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
    return {
        "PATH": ":".join(dict.fromkeys(folders)),
        "HOME": home,
        "TMPDIR": str(Path(home).parent),
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "TERM": "dumb",
        "CI": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        **(extra or {}),
    }


def isolation(userns: Sequence[str], *, unprivileged: bool = False) -> Iterator[str]:
    """Yield options for namespaces, capabilities and host name. ``userns``: how nested user namespaces are
    disabled; ``unprivileged``: not as root, even if we are."""
    yield from ("--unshare-all", "--unshare-user", "--die-with-parent", "--new-session")
    yield from ("--cap-drop", "ALL", "--hostname", _HOSTNAME, *userns)
    if unprivileged and os.geteuid() == 0:
        yield from ("--uid", str(_USER_ID), "--gid", str(_USER_ID))


def file_system(
    worktree: FileTree,
    interpreters: Sequence[Path],
    readable: Sequence[Path],
    files: Mapping[str, int],
) -> Iterator[str]:
    """Yield every mount, in order; later ones cover earlier ones. Paths are resolved. ``files``: what
    ``etc_files`` opened, by name."""
    yield from _system()
    for name, descriptor in files.items():
        yield from ("--perms", "0444", "--file", str(descriptor), f"/etc/{name}")
    yield from ("--proc", "/proc", "--dev", "/dev")
    for folder in ("/dev/shm", "/tmp"):  # noqa: S108 (the sandbox's own)
        yield from ("--size", str(MAX_TMPFS_BYTES), "--tmpfs", folder)
    yield from ("--dir", HOME, "--symlink", "/tmp", "/var/tmp")  # noqa: S108 (the sandbox's own)
    for path in dict.fromkeys([*_prefixes(interpreters), *(path.resolve() for path in readable)]):
        yield from ("--ro-bind", str(path), str(path))
    yield from writable_worktree(worktree)
    # /proc/sys belongs to root, and root keeps its user id inside, so it would be writable. What bubblewrap
    # itself built (/dev, /) is a tmpfs without a size: made read-only last.
    for folder in ("/proc", "/dev", "/"):
        yield from ("--remount-ro", folder)
    yield from ("--chdir", str(worktree.root))


def etc_files(opened: ExitStack, servers: Sequence[str] = ()) -> dict[str, int]:
    """Return the files of /etc that a target may read, open until ``opened`` closes them. ``servers``:
    further names of the loopback network."""
    names = [name for name in servers if _HOST.fullmatch(name)]
    texts = {"hosts": _HOSTS + "".join(f"127.0.0.1 {name}\n" for name in names)}
    if servers and os.geteuid() == 0:
        texts["passwd"] = _USERS
    descriptors = {}
    for name, text in texts.items():
        descriptors[name] = os.memfd_create(name)
        opened.callback(os.close, descriptors[name])
        os.write(descriptors[name], text.encode())
        os.lseek(descriptors[name], 0, os.SEEK_SET)
    for name in _ETC_FILES:
        if name in descriptors:
            continue
        try:
            descriptors[name] = os.open(f"/etc/{name}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # this system does without it
            continue
        opened.callback(os.close, descriptors[name])
    return descriptors


def writable_worktree(worktree: FileTree) -> Iterator[str]:
    """Yield the mount of the one folder that a command may change permanently, at its own path; its .git is
    read-only, unless it is not read later."""
    root = str(worktree.root)
    if worktree.upper is None:
        yield from ("--bind", root, root)
    else:
        for layer in worktree.lower:
            yield from ("--overlay-src", str(layer))
        yield from ("--overlay", str(worktree.upper), str(worktree.work), root)
    git = None if worktree.is_disposable else worktree.find(".git")
    if git is not None:
        yield from ("--ro-bind", str(git), f"{root}/.git")


def _system() -> Iterator[str]:
    yield from ("--ro-bind", "/usr", "/usr")
    for folder in _SYSTEM_OR_LINKS:
        path = Path(folder)
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), folder)
        elif path.is_dir():
            yield from ("--ro-bind", folder, folder)
    for name in _ETC_FOLDERS:
        yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")


def _prefixes(interpreters: Sequence[Path]) -> Iterator[Path]:
    """Yield the folders of interpreters outside /usr; never the whole prefix (it may be ``~/.local``)."""
    for interpreter in interpreters:
        prefix = interpreter.parent.parent
        if not prefix.is_relative_to("/usr"):
            folders = (prefix / name for name in ("bin", "lib", "lib64"))
            yield from (folder for folder in folders if folder.is_dir())
