"""What a project has at its base commit: modules, members, names that need no import.

Read as text, not as syntax, and only for what the changed files don't answer: thousands of files are looked
through in the time that a few are parsed. A word of a comment counts too.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import chain
from pathlib import PurePosixPath
from typing import NamedTuple

from fallback_tier.patch.policy import forbidden_reason
from fallback_tier.syntax import grammar_of


class About(Enum):
    """What is asked of a project: does it bring in a module, hold a file, have a member, use a name?"""

    MODULE = "module"
    FILE = "file"
    MEMBER = "member"
    ROOT = "root"
    #: Nothing that a project has answers it.
    NOTHING = "nothing"


class Question(NamedTuple):
    """``name`` is known where the project has it, in a file of the same language."""

    about: About
    name: str
    is_python: bool = True


#: Texts of paths: those that can be read.
Texts = Callable[[Iterable[str]], Iterable[tuple[str, str]]]

#: ``import name``, ``from name.a import b``; ``require('name/a')``. ``NAME`` stands for what is asked.
_PYTHON_MODULE = r"^[ \t]*(?:from[ \t]+NAME\b|import[ \t]+(?:[\w., \t]+,[ \t]*)?NAME\b)"
_SCRIPT_MODULE = r"(?:\bfrom|\bimport|\brequire\s*\(|\bimport\s*\()\s*['\"`]NAME['\"`/]"

#: Where a function, a method or a class is made, or a property gets a value.
_PYTHON_DEFINED = r"\b(?:def|class)[ \t]+NAME\b"
_SCRIPT_DEFINED = (
    r"\b(?:function\b[ \t*]*|class[ \t]+|get[ \t]+|async[ \t]+)NAME(?![\w$])"
    r"|(?<![\w$.])NAME[ \t]*(?:<[^>]*>)?\([^()]{0,400}(?:\([^()]{0,99}\)[^()]{0,400}){0,9}\)"
    r"\s{0,9}(?::[^{;=]{0,200})?\{"
    r"|(?<![\w$])NAME[ \t]*(?::|=(?!=))"
)
#: ``x.name``, or its definition.
_PYTHON_MEMBER = rf"\.[ \t]*NAME\b|{_PYTHON_DEFINED}"
_SCRIPT_MEMBER = rf"\.\s*NAME(?![\w$])|{_SCRIPT_DEFINED}"
_SCRIPT_ROOT = r"(?<![\w$.'\"-])NAME(?![\w$])"


@dataclass(frozen=True)
class Project:
    """A project's files at its base commit; none: nothing is known of it."""

    paths: tuple[str, ...] = ()
    texts: Texts = lambda _: ()

    def known(self, questions: Iterable[Question]) -> set[Question]:
        """The questions that the project answers, in files that a fix may change."""
        asked = set(questions)
        found = {question for question in asked if self._has_file(question)}
        for is_python in (True, False):
            here = {one for one in asked - found if one.is_python is is_python}
            found |= answered(here, self._sources(is_python=is_python))
        return found

    def _has_file(self, question: Question) -> bool:
        if question.about is About.FILE:
            return question.name in self._stems
        is_module = question.about is About.MODULE and question.is_python
        return is_module and question.name in self._packages

    def _sources(self, *, is_python: bool) -> Iterator[str]:
        """Texts of product source: what a test brings in is not what the product does."""
        wanted = (
            path
            for path in self.paths
            if (grammar := grammar_of(path))
            and (grammar == "python") is is_python
            and forbidden_reason(path) is None
        )
        return (text for _, text in self.texts(wanted))

    @cached_property
    def _packages(self) -> frozenset[str]:
        """Names under which Python may find a file or folder of the project."""
        found: set[str] = set()
        for path in self.paths:
            if path.endswith((".py", ".pyx", ".pyi")):
                parts = PurePosixPath(path).parts
                found |= {*parts[:-1], parts[-1].partition(".")[0]}
        return frozenset(found)

    @cached_property
    def _stems(self) -> frozenset[str]:
        return stems(self.paths)


def stems(paths: Iterable[str]) -> frozenset[str]:
    """Files without their endings, and folders: what ``./a/b`` may name."""
    found: set[str] = set()
    for path in paths:
        pure = PurePosixPath(path)
        found |= {path, *map(str, pure.parents)}
        while pure.suffix:
            pure = pure.with_suffix("")
            found.add(str(pure))
    return frozenset(found)


def answered(
    questions: Iterable[Question], texts: Iterable[str], *, defined: bool = False
) -> set[Question]:
    """The questions that a text answers. ``defined``: a member only where it is made."""
    patterns = {one: pattern for one in questions if (pattern := _pattern(one, defined=defined))}
    found: set[Question] = set()
    for text in chain(texts):
        if len(found) == len(patterns):
            break
        for question, pattern in patterns.items():
            if question not in found and question.name in text and pattern.search(text):
                found.add(question)
    return found


def _pattern(question: Question, *, defined: bool) -> re.Pattern[str] | None:
    about, name, is_python = question
    if about is About.MEMBER:
        if defined:
            message = _PYTHON_DEFINED if is_python else _SCRIPT_DEFINED
        else:
            message = _PYTHON_MEMBER if is_python else _SCRIPT_MEMBER
    elif about is About.MODULE and not defined:
        message = _PYTHON_MODULE if is_python else _SCRIPT_MODULE
    elif about is About.ROOT and not defined:
        message = _SCRIPT_ROOT
    else:
        return None
    return re.compile(message.replace("NAME", re.escape(name)), re.MULTILINE)


def package_of(message: str) -> str:
    """``@a/b`` of ``@a/b/c``, ``a`` of ``a/b``."""
    parts = message.split("/")
    return "/".join(parts[:2]) if message.startswith("@") else parts[0]
