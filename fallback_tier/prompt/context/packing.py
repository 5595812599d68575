"""Units, best first, into snippets: whole, merged with their neighbours, within the budget."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from pydantic import Field

from fallback_audit.frozen import Frozen
from fallback_tier.answers.block_grammar import Quotable
from fallback_tier.prompt.context.sources import sizes_of

#: Snippets in one prompt: more places than this are a list, not a context. Of a package's own code there
#: are as many as fill the room of a large window.
MAX_SNIPPETS = 12

#: … one for so many bytes of room: whatever the sizes of the files are, their fences take no more than half
#: as much again.
_BYTES_OF_A_SNIPPET = 400

#: One snippet: a long function with its surroundings. The fence's cap is twice that.
MAX_SNIPPET_BYTES = 4_000

#: Less than this of a file explains nothing; the budget's last bytes stay unused instead.
MIN_SNIPPET_BYTES = 160

#: Lines shown before the line of interest: the signature and the decorators above it.
_LINES_BEFORE = 12

#: Units with so few lines between them are shown as one.
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
        """What an edit may quote: lines in a row that are shown as they are."""
        lines = self.text.removesuffix("\n").split("\n")
        ends = [number - self.start_line for number in sorted(self.hidden)] + [len(lines)]
        starts = [0, *(end + 1 for end in ends)]
        runs = (tuple(lines[start:end]) for start, end in zip(starts, ends, strict=False))
        return tuple(Quotable(path=self.path, lines=run) for run in runs if run)

    def overlaps(self, place: "Wanted") -> bool:
        """Is a line of the place shown here?"""
        return (
            place.path == self.path and place.start < self.end_line and self.start_line <= place.end
        )

    @property
    def shown(self) -> str:
        """As every prompt shows it, before the fence: where it stands, then its text."""
        where = f"{self.path}, lines {self.start_line}-{self.end_line}"
        hidden = ", ".join(map(str, self.hidden))
        return f"{where}{f' (not to be edited: {hidden})' * bool(hidden)}:\n{self.text}"


class Wanted(NamedTuple):
    """Lines of a file (from 0, end excluded), and the one to be shown. ``rest``: if some are shown already,
    the others are wanted, too."""

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
    """Bytes that snippets may have together, and how many they may be."""

    budget: int
    most: int = MAX_SNIPPETS

    @classmethod
    def of_own(cls, budget: int) -> "SnippetBudget":
        """Of a package's own code there are as many as fill it."""
        return cls(budget, max(MAX_SNIPPETS, budget // _BYTES_OF_A_SNIPPET))


class _Packing:
    def __init__(
        self, lines: Callable[[str], Sequence[str]], budget: SnippetBudget, shown: Iterable[Snippet]
    ) -> None:
        self._lines = lines
        self._most = budget.most
        #: No snippet reaches over these.
        self._shown = [_Span(one.path, one.start_line - 1, one.end_line) for one in shown]
        #: Of a file, the bytes before each line.
        self._sizes: dict[str, list[int]] = {}
        self.left = budget.budget
        self.spans: list[_Span] = []

    @property
    def full(self) -> bool:
        return self.left < MIN_SNIPPET_BYTES

    def add(self, wanted: Wanted) -> None:
        """Show it if it fits; of what no snippet can hold, the part around its line of interest."""
        path, start, end, _, rest = wanted
        if path not in self._sizes:
            self._sizes[path] = [0, *accumulate(sizes_of(self._lines(path)))]
        whole = len(self._sizes[path]) - 1
        part = any(span.path == path for span in self._shown)
        if not part and self._size(path, 0, whole) <= MAX_SNIPPET_BYTES:
            start, end = 0, whole
        near = [span for span in self.spans if span.path == path]
        if any(span.start < end and start < span.end for span in near):
            if rest:
                self._add_rest(path, start, end, near)
            return
        if self._size(path, start, end) > MAX_SNIPPET_BYTES:
            start, end = self._window(wanted, min(MAX_SNIPPET_BYTES, self.left))
            if self._size(path, start, end) < MIN_SNIPPET_BYTES:
                return
        if start < end and not any(self._joined(span, start, end) for span in near):
            size = self._size(path, start, end)
            blank = not "".join(self._lines(path)[start:end]).strip()
            if size <= self.left and not blank and len(self.spans) < self._most:
                self.spans.append(_Span(path, start, end))
                self.left -= size

    def _add_rest(self, path: str, start: int, end: int, near: Sequence[_Span]) -> None:
        """What of some lines is not shown, a snippet's length at a time."""
        shown = sorted((span.start, span.end) for span in near)
        for first, after in [*shown, (end, end)]:
            while start < min(first, end) and not self.full:
                whole = Wanted(path, start, min(first, end), start)
                start, upto = self._window(whole, min(MAX_SNIPPET_BYTES, self.left))
                if start == upto:
                    break
                self.add(Wanted(path, start, upto, start))
                start = upto
            start = max(start, after)

    def _joined(self, span: _Span, start: int, end: int) -> bool:
        """Whether the span could take the lines in, with those between."""
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
        """Whole lines around the line of interest, at most ``space`` bytes."""
        path, first, last, focus, _ = wanted
        start = max(first, min(focus, last - 1) - _LINES_BEFORE)
        # The line of interest must fit: near it comes before far from it.
        while start < focus and self._size(path, start, focus + 1) > space:
            start += 1
        end = start
        while end < last and self._size(path, start, end + 1) <= space:
            end += 1
        return start, end


def _unseen(wanted: Iterable[Wanted], shown: Iterable[Snippet]) -> Iterator[Wanted]:
    """The same places without the lines that stand in a snippet already."""
    seen: dict[str, list[tuple[int, int]]] = {}
    for snippet in shown:
        seen.setdefault(snippet.path, []).append((snippet.start_line - 1, snippet.end_line))
    for place in wanted:
        start = place.start
        for first, after in [*sorted(seen.get(place.path, ())), (place.end, place.end)]:
            end = min(first, place.end)
            if start < end:
                focus = min(max(place.focus, start), end - 1)
                yield place._replace(start=start, end=end, focus=focus)
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
    """What is wanted, as far as there is room; ``lines``: those of a file, without secrets; ``hidden``:
    the numbers (from 1) of those that are not as the file has them. What is ``shown`` already is left out.

    Numbered from ``first``, in the order in which their first lines were wanted. What is wanted is taken
    one at a time.
    """
    packing = _Packing(lines, budget, shown)
    for place in _unseen(wanted, shown):
        packing.add(place)
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
