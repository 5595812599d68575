"""A proof as a user gives it: a command, and files that are added to the repository to run it."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from pydantic import Base64Bytes

from fallback_audit.vocabulary import PROOF_GATE
from fallback_tier.errors import InputError

#: The default wall-clock limit of one run of a proof: a few tests, some with their own limit because the
#: vulnerability is a hang.
PROOF_TIMEOUT_S = 120.0


#: The name of the gate that runs it.
PROOF = PROOF_GATE


class ProofError(InputError):
    """The given proof can't prove anything: it passes already, never ends, can't start or be placed."""

    code = "proof"


@dataclass(frozen=True)
class Proof:
    """A command that exits with 0 exactly where the flaw is gone, and the files that it needs.

    ``command`` is an argument list, run in the repository's root inside the sandbox, without network.
    ``files``: POSIX-relative path → content; none of them may be a file of the repository. ``timeout_s``:
    wall clock of one run. ``end``: the line that it prints where it ran to its end, and nowhere else; a
    proof whose tests are counted needs none. Raises ProofError for an empty command, for a NUL in it, for a
    path that leads out of the repository, for an end of several lines.
    """

    command: tuple[str, ...]
    #: Base64 if it is JSON (a host's configuration, a fix's stored inputs).
    files: Mapping[str, Base64Bytes] = field(default_factory=dict)
    timeout_s: float = PROOF_TIMEOUT_S
    end: str = ""

    def __post_init__(self) -> None:
        if not self.command:
            raise ProofError(
                "The proof has no command.", next_step="Name a program to run.", kind="no_command"
            )
        if any("\0" in word for word in (*self.command, *self.files)):
            raise ProofError(
                "The proof's command, or a file's name, has a NUL character in it.",
                next_step="Leave it out: no program can be given such a word.",
            )
        if self.end and [self.end.strip()] != self.end.splitlines():
            raise ProofError(
                f"The proof's last line {self.end!r} is not one line of text.",
                next_step="Give one line, without spaces around it, that nothing else prints.",
                kind="bad_end_line",
            )
        for path in self.files:
            pure = PurePosixPath(path)
            if pure.is_absolute() or not pure.parts or {"..", ".git"} & set(pure.parts):
                raise ProofError(
                    f"The proof's file {path!r} is not at a place inside the repository.",
                    next_step="Name it relative to the repository's root, without '..' and '.git'.",
                    kind="outside",
                )

    def ended(self, output: str) -> bool:
        """Return whether it printed its last line."""
        return bool(self.end) and self.end in map(str.strip, output.splitlines())

    @property
    def digest(self) -> str:
        """The SHA-256 of command, files and last line."""
        files = {path: hashlib.sha256(self.files[path]).hexdigest() for path in self.files}
        document = json.dumps([self.command, files, self.end], sort_keys=True)
        return hashlib.sha256(document.encode()).hexdigest()
