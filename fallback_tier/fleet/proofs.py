"""Proofs of a campaign: a test of one advisory's flaw in one repository, as ``fix --proof`` takes it."""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StrictStr, StringConstraints

from fallback_tier.files.inputs import open_named
from fallback_tier.fleet.refusals import CampaignError
from fallback_tier.gates.builtin.proof_given import PROOF_TIMEOUT_S, Proof
from fallback_tier.workers.repositories import RepositoryName

#: The longest run of a proof (seconds): as a gate of one's own has it.
MAX_PROOF_S = 3_600.0

#: Words of a command, and the files that it needs: it shows one flaw.
MAX_WORDS, MAX_FILES = 100, 100

#: All files of a proof together (bytes): in base64 they stand in the orders of its fixes, each of which is
#: a document of the record's (``MAX_EVIDENCE_BYTES``, 16 MiB).
MAX_PROOF_BYTES = 8 * 1024 * 1024

_Word = Annotated[StrictStr, StringConstraints(min_length=1, max_length=2_000)]


class ProofTable(BaseModel):
    """One of ``[[proofs]]``. ``advisory``: its id or an alias; ``ecosystem``: where it concerns several;
    ``files``: place in the repository → the file. Read when the campaign is planned."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    repository: RepositoryName = Field(description="which, by its name")
    advisory: _Word = Field(description="its id or an alias")
    ecosystem: _Word | None = Field(default=None, description="as the advisory names it; none: any")
    command: Annotated[tuple[_Word, ...], Field(min_length=1, max_length=MAX_WORDS)] = Field(
        description="exits with 0 exactly where the flaw is gone; an argument list, no shell"
    )
    files: Annotated[dict[_Word, Path], Field(max_length=MAX_FILES)] = Field(
        default_factory=dict, description="place in the repository → file, for that run alone"
    )
    timeout_s: float = Field(default=PROOF_TIMEOUT_S, gt=0, le=MAX_PROOF_S)
    end: str = Field(default="", description="the line that it prints where it ran to its end")

    @property
    def name(self) -> str:
        """For a person."""
        return f"proof of {self.advisory} in {self.repository}"

    def read(self) -> Proof:
        """With its files' content. Raises CampaignError, ProofError."""
        files, left = dict[str, bytes](), MAX_PROOF_BYTES
        for place, source in self.files.items():
            files[place] = self._content(source, left)
            left -= len(files[place])
        return Proof(self.command, files, self.timeout_s, self.end)

    def _content(self, source: Path, left: int) -> bytes:
        try:
            with open_named(source) as file:
                content = file.read(left + 1)
        except OSError as error:
            raise CampaignError(
                f"{self.name}: {source}: {error.strerror}.",
                next_step="Name a file that can be read; paths are relative to the campaign's file.",
                kind="unreadable",
            ) from error
        if len(content) > left:
            raise CampaignError(
                f"{self.name}: its files are more than {MAX_PROOF_BYTES:,} bytes, {source} among them.",
                next_step="Let the proof make large inputs itself.",
                kind="too_large",
            )
        return content
