"""Display of a scan as a table for people, at most 80 columns wide. Foreign text is neutralised."""

import textwrap
from collections.abc import Iterator, Sequence

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.markup import escape

from fallback_audit.showing.describe import visible
from fallback_tier.cli.remediation import line
from fallback_tier.outcome import UnreadItem
from fallback_tier.scan.document import Finding, FixStep, NotFixed, ScanResult, Stopped

#: Columns of the table, and their widths; with two spaces between them, 80.
_HEADS = ("severity", "package", "advisory", "fixed in")
_WIDTHS = (8, 26, 20, 20)
WIDTH = 80

#: Most unread sources that are printed; JSON has them all.
MAX_UNREAD_SHOWN = 10

#: Most characters of an advisory's summary that are printed: two lines.
MAX_SUMMARY_CHARS = 150

#: Most paths of a finding that are printed.
MAX_PATHS_SHOWN = 3


def show(result: ScanResult, console: Console) -> None:
    """Print what is vulnerable, worst first, then what was left out and what is unknown."""
    for text in lines(result):
        line(console, escape(text), verbatim=True)


def show_not_fixed(
    remaining: Sequence[NotFixed], fixed: int, findings: int, console: Console
) -> None:
    """Print the findings that a fix left, with those of one package and reason together, and how many of
    all are fixed: a gate saw their vulnerability gone. The others are patched."""
    ids_by_reason: dict[tuple[str, str], list[str]] = {}
    for item in remaining:
        ids_by_reason.setdefault((item.package, item.reason), []).append(item.id)
    texts = [
        f"not fixed: {package} ({', '.join(ids)}): {reason}"
        for (package, reason), ids in ids_by_reason.items()
    ]
    patched = findings - fixed - len(remaining)
    also = f"; patched, and nothing shows the flaw gone: {patched}" if patched else ""
    for text in (*texts, f"fixed: {fixed} of {findings} findings{also}"):
        for part in _wrapped(text):
            line(console, escape(part), verbatim=True)


def early_lines(result: ScanResult, limit_s: float) -> Iterator[str]:
    """Yield what is vulnerable, one row per finding, to be shown while steps are searched."""
    if result.findings:
        yield from _wrapped(
            f"{_summary(result)}; looking for the steps that fix them, for {limit_s:g} s at most"
        )
        yield _row(_HEADS)
    for finding in result.findings:
        yield _row(_cells(finding))


def lines(result: ScanResult) -> Iterator[str]:
    """Yield the report's lines: plain text, without control characters."""
    commit = result.base_commit[:12]
    yield from _wrapped(f"scan of {result.repository} at {commit}; {result.asked.sentence}")
    for source in result.advisory_sources:
        if source.kept:
            yield from _wrapped(source.sentence)
    if result.findings:
        yield _row(_HEADS)
    for finding in result.findings:
        yield from _finding(finding)
    yield from _wrapped(_summary(result))
    yield from _wrapped(_open(result))
    if result.paths:
        yield from _wrapped(
            f"limited to {', '.join(result.paths)}{_origins(result).get('paths', '')}"
        )
    yield from _first("not looked at", result.outside)
    for ignored in result.ignored:
        finding = ignored.finding
        yield from _wrapped(
            f"ignored until {ignored.until}: {finding.id} ({finding.package}): {ignored.reason}"
            f"{f' ({ignored.where})' if ignored.where else ''}"
        )
    for name in result.expired:
        yield from _wrapped(f"no longer ignored, its date has passed: {name}")
    for name in result.unmatched:
        yield from _wrapped(f"ignored, and not found here: {name}")
    for item in result.skipped:
        yield from _wrapped(f"skipped: {item.source}: {item.reason}")
    yield from _unread(result.unread)


def _finding(finding: Finding) -> Iterator[str]:
    yield _row(_cells(finding))
    yield from _wrapped(_about(finding), "  ")
    how = "direct" if finding.direct else "transitive"
    kind = "development" if finding.development else "production"
    yield from _wrapped(f"{how}, {kind}, in {', '.join(finding.sources)}", "  ")
    for path in finding.paths[:MAX_PATHS_SHOWN]:
        yield from _wrapped(" → ".join(path), "    ")
    if len(finding.paths) > MAX_PATHS_SHOWN:
        yield f"    and {len(finding.paths) - MAX_PATHS_SHOWN} more paths (--json has them)"
    for step in finding.steps:
        yield from _wrapped(_step(step), "  ")
    if finding.not_resolved:
        yield from _wrapped(finding.why_not[:1].lower() + finding.why_not[1:], "  ")
    elif finding.why_not:
        yield from _wrapped(f"no step: {finding.why_not}", "  ")
    if finding.disputed:
        versions = ", ".join(finding.disputed)
        yield from _wrapped(
            f"the database lists {versions}, and the ranges of its records do not", "  "
        )


def _cells(finding: Finding) -> tuple[str, str, str, str]:
    label = f"{finding.package} {', '.join(finding.versions)}"
    return finding.severity, label, finding.id, ", ".join(finding.fixed) or "none named"


def _step(step: FixStep) -> str:
    after = step.after or "no longer installed"
    also = f", with {', '.join(step.raised)}" if step.raised else ""
    return (
        f"{step.step.label} in {step.manifest}: {', '.join(step.before) or 'any'} → {after}{also}"
    )


def _about(finding: Finding) -> str:
    """Return the advisory's summary and its other identifiers; empty if the record has neither."""
    summary = "" if finding.summary == finding.id else finding.summary
    aliases = f"({', '.join(finding.aliases)})" if finding.aliases else ""
    return " ".join(
        filter(None, [textwrap.shorten(summary, MAX_SUMMARY_CHARS, placeholder="…"), aliases])
    )


def _summary(result: ScanResult) -> str:
    packages = {(finding.ecosystem, finding.package) for finding in result.findings}
    hides = bool(result.below or result.development or result.ignored)
    shown = "shown as vulnerable" if hides else "vulnerable"
    parts = [f"{len(packages)} of {result.packages} packages {shown}"]
    if ids := {finding.id for finding in result.findings}:
        parts.append(f"{len(ids)} {'advisory' if len(ids) == 1 else 'advisories'}")
    parts += [f"{len(result.ignored)} ignored"] if result.ignored else []
    origins = _origins(result)
    if result.below:
        parts.append(f"{result.below} below the severity{origins.get('severity', '')}")
    if result.development:
        parts.append(f"{result.development} for development alone{origins.get('production', '')}")
    if result.is_unknown:
        parts.append("not everything could be decided")
    return ", ".join(parts)


def _open(result: ScanResult) -> str:
    """Return a sentence about what the scan did not resolve because it was stopped; empty if it was not."""
    if result.stopped is None:
        return ""
    count = sum(finding.not_resolved for finding in result.findings)
    how = "`fallback-tier plan REPO --advisory ID` looks for one alone"
    if result.stopped is Stopped.TIME_LIMIT:
        how = f"--time-limit gives more time, and {how}"
    message = f"not resolved: steps of {count} of {len(result.findings)} findings; {how}"
    return f"{message}. The steps shown are those found until then; a fix of all may take others."


def _origins(result: ScanResult) -> dict[str, str]:
    """Return the source of each rule that leaves something out, as an addition to a clause."""
    return {rule.key: f" ({rule.where})" for rule in result.rules}


def _unread(unread: Sequence[UnreadItem]) -> Iterator[str]:
    texts = [f"{item.path}: {item.reason} {item.next_step}".rstrip() for item in unread]
    yield from _first("unknown", texts)


def _first(what: str, texts: Sequence[str]) -> Iterator[str]:
    for text in texts[:MAX_UNREAD_SHOWN]:
        yield from _wrapped(f"{what}: {text}")
    if len(texts) > MAX_UNREAD_SHOWN:
        yield f"{what}: and {len(texts) - MAX_UNREAD_SHOWN} more (--json has them all)"


def _row(cells: Sequence[str]) -> str:
    """Return one line of the table; a cell that is too wide ends with an ellipsis."""
    fitted = []
    for cell, width in zip(cells, _WIDTHS, strict=True):
        text = visible(cell)
        if cell_len(text) > width:
            text = f"{set_cell_size(text, width - 1).rstrip()}…"
        fitted.append(set_cell_size(text, width))
    return "  ".join(fitted).rstrip()


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(
        visible(text),
        WIDTH,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_on_hyphens=False,
    )
