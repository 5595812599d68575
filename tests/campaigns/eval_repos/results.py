"""What is kept of a case: facts of its runs, and nothing of the code that they ran on."""

from pydantic import Field

from fallback_eval.campaign import Half
from tests.campaigns.eval_repos.cases import DRAWS
from tests.campaigns.eval_repos.judge import Verdict
from tests.campaigns.eval_repos.peers import PeerEnd
from tests.campaigns.eval_repos.reported import Reported
from tests.campaigns.measuring.frozen import Frozen


class Base(Frozen):
    """What the judge saw before anything was done. ``affected``: copies that an advisory covers."""

    installs: bool
    works: bool | None
    affected: tuple[str, ...]
    said: str = ""


class Result(Frozen):
    """One case with one tool. (label, name) is the row's key.

    ``draw``: the seed that drew the case; rows of the first draw may lack it, and have no half.
    ``changes``: how often what is expected was changed after the first run. ``lines``: of the tool's diff.
    ``unlike``: where ``plan`` and ``fix`` differ.
    """

    label: str
    name: str
    half: Half | None = None
    draw: str = Field(default="", exclude_if=lambda seed: not seed)
    ecosystem: str
    kinds: tuple[str, ...]
    case_sha256: str
    expected_sha256: str
    expected: str
    changes: int
    base: Base
    told: Reported
    verdict: Verdict
    lines: int
    unlike: tuple[str, ...]
    peers: tuple[PeerEnd, ...] = ()
    seconds: float = 0.0
    made: str = ""
    tool: str = ""
    tools: dict[str, str] = {}  # noqa: RUF012 (frozen)

    @property
    def part(self) -> str:
        """The half or the draw that the case is in."""
        return self.half or self.draw or DRAWS[0]

    @property
    def is_right(self) -> bool:
        return self.verdict.is_right

    @property
    def is_false_fixed(self) -> bool:
        return self.verdict.is_false_fixed(self.told)

    @property
    def serves(self) -> bool:
        """As a peer does: nothing affected is left, and all works as before, however large the diff."""
        return self.told.outcome == "fixed" and not self.is_false_fixed

    @property
    def smallest_peer(self) -> int | None:
        """Lines of the smallest diff of a peer that clears the advisory and breaks nothing."""
        return min((peer.lines for peer in self.peers if peer.serves), default=None)
