"""What the first prompt shows of the fix's place, by the bytes that there are for code.

``python -m tests.campaigns.own_code.code_budget`` writes the page.

No model is asked: a prompt is made as ``fix`` makes it, from the case's checkout, its advisory, and what
its proof prints as it fails at the base commit. ``--outputs`` keeps that, one file per case: a proof whose
output is there does not run again, nor one of which ``NAME.none`` says why it can't run.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from fallback_audit.vocabulary import AffectedCode, DecidedBy
from fallback_eval.campaign import Half
from fallback_tier.advisory import Advisory, parse_advisory
from fallback_tier.affected import Affected
from fallback_tier.gates.builtin.proof import Proof, ProofError, ProofGate, check_proof
from fallback_tier.gates.failure_summary.proof_failure import proof_failure
from fallback_tier.inspection import look_at
from fallback_tier.installed_plugins import clients_and_plugins
from fallback_tier.prompt.builder import PromptBuilder
from fallback_tier.repo import ProofFailure, RepoContext, Settings
from fallback_tier.wiring import Configuration, RecordSettings, open_services
from tests.campaigns.measuring.proof_end import END, is_bare, saying_its_end
from tests.campaigns.own_code import report
from tests.campaigns.own_code.cases import Case, Record, load_cases, read_records
from tests.campaigns.own_code.checkout import Checkout, check_out, proof_files, write_advisory
from tests.campaigns.own_code.figures import BYTES_PER_TOKEN
from tests.campaigns.own_code.shown import Shown, shown, site
from tests.campaigns.own_code.upstream import fix_of

#: Budgets that are compared, in kilobytes.
BUDGETS = (12, 24, 48, 96, 192)

PAGE = "code-budget.md"

#: Wall clock of one proof.
_PROOF_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Seen:
    """What one prompt shows, and its size in bytes."""

    shown: Shown
    size: int


def measure(
    case: Case, record: Record, clones: Path | None, outputs: Path, budgets: Sequence[int]
) -> list[Seen]:
    """Measure one case with each budget. Raises RuntimeError if its repository isn't available."""
    clients, plugins = clients_and_plugins()
    with TemporaryDirectory(prefix="own-code-budget-", ignore_cleanup_errors=True) as folder:
        checkout = check_out(case, Path(folder), clones)
        place = write_advisory(record, Path(folder))
        advisory = parse_advisory(place.read_bytes(), str(place))
        hunks = site(fix_of(record.diff, checkout).files)
        plugin = plugins[case.ecosystem]
        repo = look_at(checkout.root, clients, Settings())
        names = frozenset(advisory.packages(case.ecosystem))
        own = plugin.own_packages(repo, names)
        affected = Affected(code=AffectedCode.OWN, decided_by=DecidedBy.MANIFEST, own=own)
        manifests = plugin.manifests(repo.tracked_files)
        repo = repo.model_copy(update={"affected": affected, "manifests": manifests})
        failure = _proof_failure(case, checkout, advisory, repo, outputs)
        repo = repo.model_copy(update={"proof_failure": failure})
        found = []
        for kilobytes in budgets:
            settings = Settings(own_code_budget_bytes=kilobytes * 1_000)
            tree = repo.model_copy(update={"settings": settings})
            prompt = PromptBuilder(lambda: "0" * 32).build(advisory, tree, plugin, own_code=True)
            found.append(Seen(shown(prompt.user, hunks), prompt.byte_count))
        return found


def _proof_failure(
    case: Case, checkout: Checkout, advisory: Advisory, repo: RepoContext, outputs: Path
) -> ProofFailure | None:
    """Return how the proof fails at the base commit, from its kept output if there is one; None: it can't
    run here."""
    files, words, end = proof_files(case, checkout), case.command, ""
    if is_bare(words) and words[1] in case.ours:
        files[words[1]], end = saying_its_end(words[0], files[words[1]]), END
    kept, none = outputs / f"{case.name}.txt", outputs / f"{case.name}.none"
    if none.exists():
        return None
    if not kept.exists():
        outputs.mkdir(parents=True, exist_ok=True)
        proof = Proof(words, files, timeout_s=_PROOF_TIMEOUT_S, end=end)
        state = checkout.root.parent / "state"
        record = RecordSettings(keys=state / "keys")
        with open_services(Configuration(state_dir=state, record=record)) as services:
            gate = ProofGate(proof, services.plugin_for(advisory))
            try:
                output = check_proof(
                    gate,
                    advisory,
                    repo,
                    clients=services.clients,
                    sandbox=services.sandbox(),
                    workspace=state,
                )
            except ProofError as error:
                none.write_text(error.problem, encoding="utf-8")
                return None
        kept.write_text(output, encoding="utf-8")
    return proof_failure(kept.read_text(encoding="utf-8"), files, repo.tracked_files)


def page(rows: Sequence[tuple[str, Sequence[Seen]]], half: Half) -> str:
    """The table of one half."""
    return "\n".join(_lines(rows, half)) + "\n"


def _lines(rows: Sequence[tuple[str, Sequence[Seen]]], half: Half) -> Iterator[str]:
    yield f"## The half {half}"
    yield ""
    yield "| room for code | a line | half of them | all of them | tokens a prompt, about (largest) |"
    yield "| --- | --- | --- | --- | --- |"
    for at, kilobytes in enumerate(BUDGETS):
        seen = [one[at] for _, one in rows]
        sizes = [one.size // BYTES_PER_TOKEN for one in seen]
        cells = [
            f"{kilobytes} KB",
            _share(one.shown.any for one in seen),
            _share(one.shown.half for one in seen),
            _share(one.shown.all for one in seen),
            f"{sum(sizes) // len(sizes):,} ({max(sizes):,})",
        ]
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield f"| case | {' | '.join(f'{kilobytes} KB' for kilobytes in BUDGETS)} |"
    yield f"| --- |{' --- |' * len(BUDGETS)}"
    for name, found in rows:
        lines = (f"{one.shown.lines_shown}/{one.shown.lines}" for one in found)
        yield f"| {name} | {' | '.join(lines)} |"


def _share(held: Iterable[bool]) -> str:
    every = list(held)
    return f"{sum(every)} of {len(every)} ({100 * sum(every) / len(every):.0f} %)"


HEAD = """\
# How much of a package's own code a prompt shows

Made by `python -m tests.campaigns.own_code.code_budget`: the first prompt of each case of `make eval-own`,
as `fix` makes it, with more and more room for code (`--code-room`). Counted are the lines that upstream's
fix removes, or stands between. No model is asked. The default is 192 KB; for a model on the same
machine, whose window is small, it is 12 KB. The proof of a case has run at the base commit: what it points
at comes first, and code is added until its rank falls off (ADR-0120), so that more room is not always used.

"""


def main() -> int:
    """0: every case was measured."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaigns.own_code.code_budget", description=__doc__
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="the data sets")
    parser.add_argument("--clones", type=Path, metavar="DIR", help="bare clones, OWNER+NAME.git")
    parser.add_argument(
        "--outputs", type=Path, required=True, metavar="DIR", help="what proofs print, kept"
    )
    parser.add_argument("--look-at-what-was-set-aside", action="store_true", help="mean it")
    parser.add_argument("--folder", type=Path, default=report.FOLDER, help="where the page is")
    arguments = parser.parse_args()
    records = read_records(arguments.data)
    halves = (Half.SEEN, Half.SET_ASIDE) if arguments.look_at_what_was_set_aside else (Half.SEEN,)
    parts = []
    for half in halves:
        rows: list[tuple[str, list[Seen]]] = []
        for case in load_cases(half=half):
            record = records[(case.record, case.fix_commit)]
            found = measure(case, record, arguments.clones, arguments.outputs, BUDGETS)
            rows.append((case.name, found))
            print(f"{case.name}: {[one.shown.lines_shown for one in rows[-1][1]]}", file=sys.stderr)
        parts.append(page(rows, half))
    (arguments.folder / PAGE).write_text(HEAD + "\n".join(parts), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
