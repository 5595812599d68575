"""Paths that a patch may name at all: plain, relative, and the same file on every file system.

``git apply --numstat`` accepts ``../outside.txt``, and Windows and macOS fold names that Linux
distinguishes (``.GIT``, ``.git.``, ``git~1``, ``.g<zero width>it``), so a patch is judged by the strictest
of the three: a path that is unsafe on any of them is refused on all.
"""

import re
import unicodedata

#: POSIX PATH_MAX and NAME_MAX, in UTF-8 bytes.
MAX_PATH_BYTES = 4_096
MAX_NAME_BYTES = 255

#: Control, format (zero-width, bidi), surrogate, private, unassigned, line and paragraph separators:
#: invisible, or ignored by HFS+ when it compares names. No source file needs them in its name.
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})

#: 8.3 short names under which NTFS also finds ``.git`` and ``.gitmodules`` (``git~1``,
#: ``GI7EBA~1``).
_SHORT_GIT_NAME = re.compile(r"\.?gi[a-z0-9]{0,4}~[0-9]+")

_DRIVE = re.compile(r"[A-Za-z]:")


def folded(component: str) -> str:
    """Return a path component as the most lenient file system compares it: case folded,
    compatibility-normalised, without NTFS stream, trailing dots and spaces."""
    name = unicodedata.normalize("NFKC", component).partition(":")[0]
    return name.rstrip(". ").casefold()


def is_git_folder(component: str) -> bool:
    """Return whether some file system takes this component for git's own folder."""
    name = folded(component)
    return name == ".git" or _SHORT_GIT_NAME.fullmatch(name) is not None


def unsafe_reason(path: str) -> str | None:
    """Return why no patch may name this path, in one sentence, or None if it may."""
    if not path:
        return "the path is empty"
    if any(unicodedata.category(character) in _INVISIBLE for character in path):
        return "the path has control, invisible or unassigned characters"
    if len(path.encode("utf-8")) > MAX_PATH_BYTES:
        return f"the path is longer than {MAX_PATH_BYTES:,} bytes"
    if "\\" in path or '"' in path:
        return "the path has a backslash or a double quote, which git would have to quote"
    if path.startswith("/") or _DRIVE.match(path):
        return "the path is absolute"
    for component in path.split("/"):
        reason = _unsafe_component(component)
        if reason is not None:
            return reason
    return None


def _unsafe_component(component: str) -> str | None:
    if component in {"", ".", ".."}:
        return "the path has an empty, `.` or `..` component"
    if is_git_folder(component):
        return "the path lies in git's own folder, or would on another file system"
    if component != component.strip() or component.endswith("."):
        return "a component begins or ends with a space, or ends with a dot"
    if len(component.encode("utf-8")) > MAX_NAME_BYTES:
        return f"a component is longer than {MAX_NAME_BYTES} bytes"
    return None
