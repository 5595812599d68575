"""One exception tree, drawn where it stands: every error of the product is in it, below its base."""

import ast
import re
from pathlib import Path

from fallback_audit import errors as audit_errors
from fallback_tier import errors

ROOT = Path(__file__).parents[2]

#: Caught where they are raised; what they have to be for that.
ELSEWHERE = {
    "DiskFullError": "Exception",
    "LenientJsonError": "ValueError",
    "RowError": "ValueError",
    "UnreadableError": "ValueError",
    "DuplicateKeyError": "ValueError",
    "AnswerTooLargeError": "OSError",
    "StatusError": "OSError",
    "AddressError": "OSError",
    "UnreportedError": "OSError",
    "FilesReplacedError": "Exception",
    "SessionOverError": "Exception",
    "HostRefusedError": "Exception",
    "Late": "BaseException",
}


def written() -> dict[str, str]:
    """Each exception class of the product with its base."""
    bases: dict[str, str] = {}
    for package in ("fallback_tier", "audit", "plugins"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and node.bases and node.name[0] != "_":
                    bases[node.name] = ast.unparse(node.bases[0])
    return {name: base for name, base in bases.items() if is_exception(name, bases)}


def is_exception(name: str, bases: dict[str, str]) -> bool:
    while name in bases:
        name = bases[name]
    return name in {"Exception", "BaseException", "ValueError", "OSError", "RuntimeError"}


def drawn(tree: str) -> dict[str, str]:
    """Each name of a tree with the one that it hangs from."""
    bases: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for line in tree.splitlines():
        found = re.match(r"((?:    |│   )+)(?:[├└]── )?(\w+)", line)
        if found:
            depth = len(found[0]) - len(found[2])
            above = [(at, name) for at, name in above if at < depth]
            if above:
                bases[found[2]] = above[-1][1]
            above.append((depth, found[2]))
    return bases


def test_every_error_is_drawn_below_its_base() -> None:
    trees = drawn(audit_errors.__doc__ or "") | drawn(errors.__doc__ or "")
    assert len(trees) > 35
    assert trees | ELSEWHERE | {"FallbackError": "Exception"} == written()


def test_those_of_the_module_are_public() -> None:
    here = {name for name, value in vars(errors).items() if isinstance(value, type)}
    assert here - {"ModelFailureKind", "RefusalReason"} == set(errors.__all__) - {"first_fault"}
