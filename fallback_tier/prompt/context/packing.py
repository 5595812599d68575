"""Packing of units, best first, into snippets: whole, merged with their neighbours, within the budget."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from pydantic import Field

from fallback_audit.frozen import Frozen
from fallback_tier.answers.block_grammar import Quotable
from fallback_tier.prompt.context.sources import sizes_of

#: The number of snippets in one prompt: more are a list, not a context. For a package's own code there are
#: as many as fill a large window.
MAX_SNIPPETS = 12

#: One snippet per this many bytes of the budget: whatever the files' sizes are, their fences add at most
#: half.
_BYTES_OF_A_SNIPPET = 400

#: The limit of one snippet: a long function with its surroundings. The fence's cap is twice that.
MAX_SNIPPET_BYTES = 4_000

#: Less than this of a file explains nothing; the budget's last bytes are left unused instead.
MIN_SNIPPET_BYTES = 160

#: Lines shown before the line of interest: the signature and the decorators above it.
_LINES_BEFORE = 12

#: Units with at most this many lines between them are merged.
_MAX_GAP_LINES = 3


class Snippet(Frozen):
    """Lines of one file as the prompt shows them; secrets are already out."""

    id: str
    path: str
    start_line: int = Field(ge=1)
    text: str
    #: Numbers of lines that are not shown as they are: no edit can quote them.
    hidden: tuple[int, ...] = ()

    @property
    def end_line(self) -> int:
        """The last line shown."""
        return self.start_line + max(0, self.text.removesuffix("\n").count("\n"))

    @property
    def quotable(self) -> tuple[Quotable, ...]:
        """The parts that an edit may quote: consecutive lines that are shown as they are."""
        lines = self.text.removesuffix("\n").split("\n")
        ends = [number - self.start_line for number in sorted(self.hidden)] + [len(lines)]
        starts = [0, *(end + 1 for end in ends)]
        runs = (tuple(lines[start:end]) for start, end in zip(starts, ends, strict=False))
        return tuple(Quotable(path=self.path, lines=run) for run in runs if run)

    def overlaps(self, place: "Wanted") -> bool:
        """Return whether a line of the wanted code is in this snippet."""
        return (
            place.path == self.path and place.start < self.end_line and self.start_line <= place.end
        )

    @property
    def shown(self) -> str:
        """The text for every prompt, before the fence: the location, then the lines."""
        location = f"{self.path}, lines {self.start_line}-{self.end_line}"
        hidden = ", ".join(map(str, self.hidden))
        return f"{location}{f' (not to be edited: {hidden})' * bool(hidden)}:\n{self.text}"


class Wanted(NamedTuple):
    """Lines of a file (from 0, end excluded), and the one to be shown. ``rest``: if some are shown already,
    the others are wanted too."""

    path: str
    start: int
    end: int
    focus: int
    rest: bool = False


@dataclass
class _Span:
    path: str
    start: int
    end: int


class SnippetBudget(NamedTuple):
    """The limits of snippets: their bytes together, and their number."""

    budget: int
    most: int = MAX_SNIPPETS

    @classmethod
    def of_own(cls, budget: int) -> "SnippetBudget":
        """Return the budget for a package's own code: as many snippets as fill it."""
        return cls(budget, max(MAX_SNIPPETS, budget // _BYTES_OF_A_SNIPPET))


class _Packing:
    def __init__(
        self, lines: Callable[[str], Sequence[str]], budget: SnippetBudget, shown: Iterable[Snippet]
    ) -> None:
        self._lines = lines
        self._most = budget.most
        #: No snippet extends over these.
        self._shown = [
            _Span(snippet.path, snippet.start_line - 1, snippet.end_line) for snippet in shown
        ]
        #: For each file, the bytes before each line.
        self._sizes: dict[str, list[int]] = {}
        self.left = budget.budget
        self.spans: list[_Span] = []

    @property
    def full(self) -> bool:
        return self.left < MIN_SNIPPET_BYTES

    def add(self, wanted: Wanted) -> None:
        """Add the lines if they fit; if no snippet can hold them, the part around the line of interest."""
        path, start, end, _, rest = wanted
        if path not in self._sizes:
            self._sizes[path] = [0, *accumulate(sizes_of(self._lines(path)))]
        line_count = len(self._sizes[path]) - 1
        is_partly_shown = any(span.path == path for span in self._shown)
        if not is_partly_shown and self._size(path, 0, line_count) <= MAX_SNIPPET_BYTES:
            start, end = 0, line_count
        spans_of_file = [span for span in self.spans if span.path == path]
        if any(span.start < end and start < span.end for span in spans_of_file):
            if rest:
                self._add_rest(path, start, end, spans_of_file)
            return
        if self._size(path, start, end) > MAX_SNIPPET_BYTES:
            start, end = self._window(wanted, min(MAX_SNIPPET_BYTES, self.left))
            if self._size(path, start, end) < MIN_SNIPPET_BYTES:
                return
        if start < end and not any(self._joined(span, start, end) for span in spans_of_file):
            size = self._size(path, start, end)
            is_blank = not "".join(self._lines(path)[start:end]).strip()
            if size <= self.left and not is_blank and len(self.spans) < self._most:
                self.spans.append(_Span(path, start, end))
                self.left -= size

    def _add_rest(self, path: str, start: int, end: int, near: Sequence[_Span]) -> None:
        """Add those of the lines that are not shown, a snippet's length at a time."""
        shown_spans = sorted((span.start, span.end) for span in near)
        for first, after in [*shown_spans, (end, end)]:
            while start < min(first, end) and not self.full:
                remaining = Wanted(path, start, min(first, end), start)
                start, stop = self._window(remaining, min(MAX_SNIPPET_BYTES, self.left))
                if start == stop:
                    break
                self.add(Wanted(path, start, stop, start))
                start = stop
            start = max(start, after)

    def _joined(self, span: _Span, start: int, end: int) -> bool:
        """Extend the span by the lines, and those in between, if possible. Return whether it was."""
        first, last = min(span.start, start), max(span.end, end)
        gap = (last - first) - (span.end - span.start) - (end - start)
        size = self._size(span.path, first, last)
        more = size - self._size(span.path, span.start, span.end)
        if gap > _MAX_GAP_LINES or size > MAX_SNIPPET_BYTES or more > self.left:
            return False
        if any(
            other is not span
            and other.path == span.path
            and first < other.end
            and other.start < last
            for other in (*self.spans, *self._shown)
        ):
            return False
        span.start, span.end = first, last
        self.left -= more
        return True

    def _size(self, path: str, start: int, end: int) -> int:
        sizes = self._sizes[path]
        return sizes[min(end, len(sizes) - 1)] - sizes[min(start, len(sizes) - 1)]

    def _window(self, wanted: Wanted, space: int) -> tuple[int, int]:
        """Return whole lines around the line of interest, at most ``space`` bytes."""
        path, first, last, focus, _ = wanted
        start = max(first, min(focus, last - 1) - _LINES_BEFORE)
        # The line of interest must fit: nearby lines take precedence over distant ones.
        while start < focus and self._size(path, start, focus + 1) > space:
            start += 1
        end = start
        while end < last and self._size(path, start, end + 1) <= space:
            end += 1
        return start, end


def _unseen(wanted: Iterable[Wanted], shown: Iterable[Snippet]) -> Iterator[Wanted]:
    """Yield the wanted code without the lines that are in a snippet already."""
    seen: dict[str, list[tuple[int, int]]] = {}
    for snippet in shown:
        seen.setdefault(snippet.path, []).append((snippet.start_line - 1, snippet.end_line))
    for item in wanted:
        start = item.start
        for first, after in [*sorted(seen.get(item.path, ())), (item.end, item.end)]:
            end = min(first, item.end)
            if start < end:
                focus = min(max(item.focus, start), end - 1)
                yield item._replace(start=start, end=end, focus=focus)
            start = max(start, after)


def pack(
    wanted: Iterable[Wanted],
    lines: Callable[[str], Sequence[str]],
    budget: SnippetBudget,
    *,
    shown: Sequence[Snippet] = (),
    first: int = 1,
    hidden: Callable[[str], frozenset[int]] = lambda _: frozenset(),
) -> tuple[Snippet, ...]:
    """Return snippets of the wanted code, as far as there is room. Lines that are ``shown`` already are
    left out.

    ``lines``: those of a file, without secrets; ``hidden``: the numbers (from 1) of lines that differ from
    the file.

    Snippets are numbered from ``first``, in the order in which their first lines were wanted. ``wanted`` is
    consumed one item at a time.
    """
    packing = _Packing(lines, budget, shown)
    for item in _unseen(wanted, shown):
        packing.add(item)
        if packing.full:
            break
    return tuple(
        Snippet(
            id=f"S{number}",
            path=span.path,
            start_line=span.start + 1,
            text="".join(lines(span.path)[span.start : span.end]),
            hidden=tuple(
                sorted(hidden(span.path) & frozenset(range(span.start + 1, span.end + 1)))
            ),
        )
        for number, span in enumerate(packing.spans, start=first)
    )
