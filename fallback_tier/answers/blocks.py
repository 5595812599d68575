"""Parsing of plain text with search/replace blocks to a plan: one pass over the lines, without guesses.

Tolerated is what has one reading: prose and code fences around, Markdown's marks on a key or a path, a bare
path above its block, keys in any order, several blocks in a row under one path. A block whose own lines are
markers, a path without a block, a key given twice: for these the model is asked again.
"""

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from fallback_tier.answers.block_form import (
    DIVIDER,
    REPLACE,
    SEARCH,
    closes,
    dividers,
    opens,
    parted,
    word,
    words,
)
from fallback_tier.answers.lenient_json import Value, canonical
from fallback_tier.answers.reading import (
    MAX_PROBLEMS,
    THINKING,
    no_text,
    parse_one,
    read_one,
    shown,
    text_after_thinking,
    validated,
)
from fallback_tier.outcome import Plan, plan_adapter
from fallback_tier.ports import ModelAnswer
from fallback_tier.repo import AnswerForm

_ONE_PLAN: Final = "Answer with exactly one plan, in the form that was asked for, and nothing else."

#: ``key: value``, as models decorate it: ``**Action:** `refuse```, ``- path: a.py``, ``"version": "1.2"``.
_KEYED: Final = re.compile(
    r"[-*#>\s\"'`]{0,8}"
    r"(action|package|version|reason|rationale|citations|capabilities|path)"
    r"[*\s\"'`]{0,8}:(.*)",
    re.IGNORECASE,
)

_FENCE: Final = re.compile(r"\s{0,8}(```|~~~).*")

#: Characters around a path that is alone on its line, as above a block in many manuals.
_AROUND_A_PATH: Final = "*#>`\"': \t"

#: The longest part of an answer that a problem quotes.
_QUOTED_CHARS: Final = 80


def _read_blocks(answer: ModelAnswer) -> tuple[Plan | None, tuple[str, ...]]:
    """Return the plan in an answer, or its problems. A cut answer is never used, as in ``read_plan`` of
    JSON. Never raises."""
    if problem := no_text(answer, _ONE_PLAN):
        return None, (problem,)
    return parse_blocks(answer.text)


def parse_blocks(text: str) -> tuple[Plan | None, tuple[str, ...]]:
    """Do the same as ``_read_blocks``, for the text alone. Two different plans are a problem, the same one
    repeated is not."""
    text, problem = text_after_thinking(text, _ONE_PLAN)
    if problem:
        return None, (problem,)
    reader = _Reader()
    for line in text.split("\n"):
        _, thought, answer_part = line.rpartition(THINKING[1])
        if thought and reader.block is None:
            # A template opened the thinking in the prompt: the text before is not an answer.
            reader, line = _Reader(), answer_part
        reader.feed(line.removesuffix("\r"))
    if problems := reader.end():
        more = len(problems) - MAX_PROBLEMS
        notes = [f"There are {more} more problems of this kind."] * (more > 0)
        return None, (*problems[:MAX_PROBLEMS], *notes)
    drafts_by_document = {canonical(draft): draft for draft in reader.drafts}
    if len(drafts_by_document) > 1:
        return None, (f"The answer has {len(drafts_by_document)} different plans. {_ONE_PLAN}",)
    document, draft = next(iter(drafts_by_document.items()))
    if "action" not in draft:
        return None, (f"The answer has no line `action: …`. {_ONE_PLAN}",)
    if draft["action"] == "source_edit" and "edits" not in draft:
        return None, ("The plan has no edit: write a line `path: FILE` and a block for each.",)
    return validated(document, plan_adapter)


@dataclass
class _Reader:
    """The state after the lines so far. ``block``: the lines of the open block, None outside."""

    drafts: list[dict[str, Value]] = field(default_factory=lambda: [{}])
    problems: list[str] = field(default_factory=list)
    block: list[str] | None = None
    #: Blocks of the last draft, valid or not: the number that a problem names.
    blocks: int = 0
    path: str = ""
    #: The path was given by its key, and no block has followed yet.
    is_waiting: bool = False

    def feed(self, line: str) -> None:
        """Read one line. Inside a block all lines are code, except its end or another beginning."""
        if self.block is not None:
            if opens(line):
                self._problem(f"Edit {self.blocks} has a line `{SEARCH}` of its own", _NO_MARKERS)
                self._begin()
            elif closes(line):
                self._finish(self.block)
            else:
                self.block.append(line)
            return
        if opens(line):
            self._begin()
        elif closes(line):
            self._problem(f"A line `{REPLACE}` belongs to no block", _NO_MARKERS)
        elif keyed := _KEYED.fullmatch(line):
            self._keyed(keyed[1].lower(), keyed[2].strip())
        elif line.strip() and not _FENCE.fullmatch(line):
            self._prose(line)

    def end(self) -> list[str]:
        """Return every problem of the text."""
        if self.block is not None:
            self._problem(f"Edit {self.blocks} is not closed", f"end it with a line `{REPLACE}`")
        self._leave_path()
        return self.problems

    def _begin(self) -> None:
        self.block = []
        self.blocks += 1

    def _finish(self, block: list[str]) -> None:
        self.block, self.is_waiting = None, False
        divider_indexes = dividers(block)
        if not divider_indexes:
            between = f"put one between its old and its new lines, and `{REPLACE}` after these"
            self._problem(f"Edit {self.blocks} has no line `{DIVIDER}`", between)
        elif len(divider_indexes) > 1:
            self._problem(
                f"Edit {self.blocks} has {len(divider_indexes)} lines `{DIVIDER}`", _NO_MARKERS
            )
        elif not self.path:
            self._problem(f"Edit {self.blocks} has no path", "write a line `path: FILE` before it")
        else:
            old, new = parted(block, divider_indexes[0])
            edits = self.drafts[-1].setdefault("edits", [])
            assert isinstance(edits, list)  # noqa: S101 (no other code writes this key)
            edits.append({"path": self.path, "old": old, "new": new})

    def _keyed(self, key: str, value: str) -> None:
        """Read a line of the plan's head; a line without a value is ignored."""
        parsed: Value = value
        if key in {"citations", "capabilities"}:
            parsed = [*words(value)]
        elif key not in {"rationale", "reason"}:
            parsed = word(value)
        if not parsed:
            return
        if key == "path":
            self._leave_path(parsed)
            self.path, self.is_waiting = str(parsed), True
            return
        if key == "action" and key in self.drafts[-1]:
            self._leave_path()
            self.drafts.append({})
            self.path, self.blocks = "", 0
        if self.drafts[-1].setdefault(key, parsed) != parsed:
            self._problem(f"`{key}` is given twice", "say it once, on one line")

    def _prose(self, line: str) -> None:
        """Read a bare path, or words that end the scope of a path."""
        if self.is_waiting:
            return
        bare = line.strip(_AROUND_A_PATH)
        is_path = ("/" in bare or "." in bare) and not re.search(r"\s", bare)
        self.path = bare if is_path else ""

    def _leave_path(self, next_path: Value = None) -> None:
        if self.is_waiting and self.path != next_path:
            quoted = shown(self.path[:_QUOTED_CHARS])
            self._problem(f"No block follows the path {quoted!r}", "give its edit, or leave it out")
        self.is_waiting = False

    def _problem(self, what: str, to_do: str) -> None:
        self.problems.append(f"{what}: {to_do}.")


_NO_MARKERS: Final = (
    f"close each block before the next, and choose lines for an edit that are no `{SEARCH}`, "
    f"`{DIVIDER}` or `{REPLACE}` themselves"
)


#: A key that every plan has, and few other objects in an answer.
_KEY = "action"


def read_plan(
    answer: ModelAnswer, form: AnswerForm = AnswerForm.JSON
) -> tuple[Plan | None, tuple[str, ...]]:
    """Return the plan in an answer, or its problems: exactly one of the two. Never raises."""
    if form is AnswerForm.BLOCKS:
        return _read_blocks(answer)
    return read_one(answer, _KEY, plan_adapter)


def parse_plan(text: str) -> tuple[Plan | None, tuple[str, ...]]:
    """Do the same as ``read_plan`` of JSON, for the text alone."""
    return parse_one(text, _KEY, plan_adapter)


@lru_cache(maxsize=2)
def plan_schema(*, declaring: bool = False) -> dict[str, Any]:
    """Return the JSON schema of a plan, shared: don't change it.

    ``declaring``: with capabilities, for a retry whose prompt explains them (a model that sees the field at
    once declares too much).
    """
    schema = plan_adapter.json_schema()
    if not declaring:
        for definition in schema["$defs"].values():
            definition.get("properties", {}).pop("capabilities", None)
        del schema["$defs"]["Capability"]
    return schema
