"""A project's content at its base commit: modules, members, names that need no import.

Read as text, not as syntax, and only for what the changed files don't answer: thousands of files are
searched in the time that a few are parsed. A word in a comment counts too.
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
    """The kind of question: does a project import a module, hold a file, have a member, use a name?"""

    MODULE = "module"
    FILE = "file"
    MEMBER = "member"
    ROOT = "root"
    #: The project's content does not answer it.
    NOTHING = "nothing"


class Question(NamedTuple):
    """A question whether the project has ``name``, in a file of the same language."""

    about: About
    name: str
    is_python: bool = True


#: Returns the texts of paths, of those that can be read.
Texts = Callable[[Iterable[str]], Iterable[tuple[str, str]]]

#: ``import name``, ``from name.a import b``; ``require('name/a')``. ``NAME`` is replaced by the question's
#: name.
_PYTHON_MODULE = r"^[ \t]*(?:from[ \t]+NAME\b|import[ \t]+(?:[\w., \t]+,[ \t]*)?NAME\b)"
_SCRIPT_MODULE = r"(?:\bfrom|\bimport|\brequire\s*\(|\bimport\s*\()\s*['\"`]NAME['\"`/]"

#: A definition of a function, a method or a class, or a property that gets a value.
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
    """A project's files at its base commit; without paths nothing is known of it."""

    paths: tuple[str, ...] = ()
    texts: Texts = lambda _: ()

    def known(self, questions: Iterable[Question]) -> set[Question]:
        """Return the questions that the project answers, in files that a fix may change."""
        unique = set(questions)
        known = {question for question in unique if self._has_file(question)}
        for is_python in (True, False):
            remaining = {question for question in unique - known if question.is_python is is_python}
            known |= answered(remaining, self._sources(is_python=is_python))
        return known

    def _has_file(self, question: Question) -> bool:
        if question.about is About.FILE:
            return question.name in self._stems
        is_module = question.about is About.MODULE and question.is_python
        return is_module and question.name in self._packages

    def _sources(self, *, is_python: bool) -> Iterator[str]:
        """Return the texts of product source: what a test imports is not what the product does."""
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
        names: set[str] = set()
        for path in self.paths:
            if path.endswith((".py", ".pyx", ".pyi")):
                parts = PurePosixPath(path).parts
                names |= {*parts[:-1], parts[-1].partition(".")[0]}
        return frozenset(names)

    @cached_property
    def _stems(self) -> frozenset[str]:
        return stems(self.paths)


def stems(paths: Iterable[str]) -> frozenset[str]:
    """Return the paths of files without their endings, and of folders: what ``./a/b`` may name."""
    names: set[str] = set()
    for path in paths:
        pure = PurePosixPath(path)
        names |= {path, *map(str, pure.parents)}
        while pure.suffix:
            pure = pure.with_suffix("")
            names.add(str(pure))
    return frozenset(names)


def answered(
    questions: Iterable[Question], texts: Iterable[str], *, defined: bool = False
) -> set[Question]:
    """Return the questions that a text answers. ``defined``: a member counts only where it is defined."""
    patterns = {
        question: pattern
        for question in questions
        if (pattern := _pattern(question, defined=defined))
    }
    known: set[Question] = set()
    for text in chain(texts):
        if len(known) == len(patterns):
            break
        for question, pattern in patterns.items():
            if question not in known and question.name in text and pattern.search(text):
                known.add(question)
    return known


def _pattern(question: Question, *, defined: bool) -> re.Pattern[str] | None:
    about, name, is_python = question
    if about is About.MEMBER:
        if defined:
            pattern = _PYTHON_DEFINED if is_python else _SCRIPT_DEFINED
        else:
            pattern = _PYTHON_MEMBER if is_python else _SCRIPT_MEMBER
    elif about is About.MODULE and not defined:
        pattern = _PYTHON_MODULE if is_python else _SCRIPT_MODULE
    elif about is About.ROOT and not defined:
        pattern = _SCRIPT_ROOT
    else:
        return None
    return re.compile(pattern.replace("NAME", re.escape(name)), re.MULTILINE)


def package_of(specifier: str) -> str:
    """Return ``@a/b`` for ``@a/b/c``, ``a`` for ``a/b``."""
    parts = specifier.split("/")
    return "/".join(parts[:2]) if specifier.startswith("@") else parts[0]
