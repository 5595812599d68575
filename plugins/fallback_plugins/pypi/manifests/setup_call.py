"""What a setup.py passes to ``setup()``, as far as it can be read: parsed, never run.

Texts, lists and tables that are written out, names that are given one such value, and what is put into a
table before it is passed (``setup(**about)``). What is computed is left out.
"""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from typing import Any

#: Names followed from one to the next: nobody writes longer chains.
_MAX_HOPS = 5

#: Longer, and it is no setup script that a person wrote (characters).
_MAX_CHARS = 200_000

#: Scripts whose calls are kept, by their texts: a project has one, at either commit.
_SCRIPTS = 16

#: The keywords by which a project requires packages.
REQUIRES = ("install_requires", "extras_require")

#: Functions that only put lists together.
_GATHERS = frozenset(
    {"sum", "list", "set", "sorted", "tuple", "frozenset", "itertools", "chain", "from_iterable"}
    | {"values", "items", "keys", "union", "copy"}
)
_GATHERING = (
    ast.Call
    | ast.Name
    | ast.Tuple
    | ast.Attribute
    | ast.Subscript
    | ast.Starred
    | ast.expr_context
    | ast.ListComp
    | ast.SetComp
    | ast.GeneratorExp
    | ast.comprehension
    | ast.Compare
    | ast.cmpop
)
_CHOOSES = ast.Compare | ast.Subscript

#: In a table, that it has entries which can't be read (``{**made()}``).
_HIDDEN = "**"

#: Methods that change a list in place, and a value that can't be read.
_CHANGES = frozenset({"append", "extend", "insert", "update"})
_UNKNOWN = ast.Constant(value=None)

#: Of one text that is put together: a name or an address (characters).
_MAX_TEXT_CHARS = 1_000


@dataclass(frozen=True)
class SetupCall:
    """The keywords of the call. ``hides_its_name``: it has a name, which can't be read here. ``is_whole``:
    each keyword is in the text. What another call of the script requires otherwise is left out."""

    keywords: Mapping[str, Any] = field(default_factory=dict)
    hides_its_name: bool = False
    is_whole: bool = True

    @property
    def required(self) -> tuple[Any, Any]:
        """What it requires, and with its extras; None: nothing that can be read."""
        return self.keywords.get(REQUIRES[0]), self.keywords.get(REQUIRES[1])


def setup_call(text: str) -> SetupCall:
    """The outermost call of ``setup`` that has a name, else the outermost one; empty where there is none.

    What is no Python of today hides its name.
    """
    if len(text) > _MAX_CHARS:
        return SetupCall(hides_its_name=True, is_whole=False)
    try:
        return _call_in(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return SetupCall(hides_its_name=True, is_whole=False)


def only_defines(text: str) -> bool:
    """Return whether a file builds nothing if it runs: a package's module that is called setup.py.

    It only imports, defines and assigns, and imports neither setuptools nor distutils nor a ``setup``.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            *(
                [it.name for it in node.names]
                if isinstance(node, ast.Import | ast.ImportFrom)
                else ()
            ),
            *([node.module or ""] if isinstance(node, ast.ImportFrom) else ()),
        )
    }
    defining = ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef
    is_closed = all(
        isinstance(node, defining)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for node in _run_by_import(tree)
    )
    return is_closed and imported.isdisjoint({"setup", "setuptools", "distutils"})


def _run_by_import(tree: ast.Module) -> Iterator[ast.stmt]:
    """The statements of a module, without assignments of what is no call, and those for type checkers."""
    for node in tree.body:
        for_types = isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        assigns = isinstance(node, ast.Assign | ast.AnnAssign)
        if not for_types and not (assigns and not any(map(_is_call, ast.walk(node)))):
            yield node


def _is_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call)


@lru_cache(maxsize=_SCRIPTS)
def _call_in(text: str) -> SetupCall:
    """The same, read once. What is raised is not kept: how deep may be read depends on who asks."""
    tree = ast.parse(text)
    known = _assigned(tree)
    calls = [_read(node, known) for node in ast.walk(tree) if _is_setup(node)]
    named = (call for call in calls if call.hides_its_name or "name" in call.keywords)
    chosen = next(named, calls[0] if calls else SetupCall())
    whole = all(call.is_whole for call in calls)
    agree = all(call.required == chosen.required for call in calls)
    left = {it: value for it, value in chosen.keywords.items() if agree or it not in REQUIRES}
    return replace(chosen, keywords=left, is_whole=whole)


def _is_setup(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name == "setup" and bool(node.keywords)


def _read(call: ast.AST, known: Mapping[str, Any]) -> SetupCall:
    assert isinstance(call, ast.Call)  # noqa: S101 (_is_setup)
    found: dict[str, Any] = {}
    hides = False
    for keyword in call.keywords:
        value = _value(keyword.value, known)
        if keyword.arg is not None:
            found[keyword.arg] = value
            hides = hides or (keyword.arg == "name" and not isinstance(value, str))
        elif isinstance(value, dict):
            found = {**value, **found}
        else:
            hides = True
    is_whole = not hides and _HIDDEN not in found
    found |= {word: _lines(found[word]) for word in REQUIRES if word in found}
    reported = {name: value for name, value in found.items() if value is not None}
    hides = ("name" not in reported) and (not is_whole or "name" in found)
    return SetupCall(reported, hides, is_whole)


def _lines(value: Any) -> Any:
    """Requirements as lists: setuptools takes a text of several lines as well."""
    if isinstance(value, dict):
        return {extra: _lines(one) for extra, one in value.items()}
    return value.splitlines() if isinstance(value, str) else value


def _assigned(tree: ast.Module) -> dict[str, Any]:
    """Name → the one value that it is given; a name that is given several has none."""
    given: dict[str, list[ast.expr]] = {}
    put: dict[str, list[tuple[str, ast.expr]]] = {}
    for node in ast.walk(tree):
        for name, value in _assignments(node):
            given.setdefault(name, []).append(value)
        for name, key, value in _entries(node):
            put.setdefault(name, []).append((key, value))
    otherwise = {name for name, number in _bound(tree).items() if number > len(given.get(name, ()))}
    known: dict[str, Any] = {}
    for _ in range(_MAX_HOPS):
        known = {
            name: None if name in otherwise else _one_value(values, known)
            for name, values in given.items()
        }
    for name, values in _added(tree):
        listed, more = known.get(name), [_value(value, known) for value in values]
        whole = isinstance(listed, list) and all(isinstance(it, str | list) for it in more)
        # What is added under a condition may be there.
        flat = [one for it in more for one in (it if isinstance(it, list) else [it])]
        known[name] = [*chain(listed or (), flat)] if whole else None
    for name, entries in put.items():
        for entry in entries:
            table = known.get(name)
            if isinstance(table, dict):
                made = _table([entry], known)
                # What is put in the place of a list under a condition may not be there.
                before = {key: _lines(table.get(key)) for key in made}
                both = [it for it in made if isinstance(made[it], list) and before[it]]
                known[name] = table | made | {it: _flat([before[it], made[it]]) for it in both}
    return known


def _bound(tree: ast.Module) -> Counter[str]:
    """How often each name is given a value, by an import or a loop too; not what is added to a list."""
    added = {id(node.target) for node in ast.walk(tree) if isinstance(node, ast.AugAssign)}
    stored = (
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in added
    )
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.alias))
    return Counter((*stored, *(it.asname or it.name for it in imports)))


def _one_value(values: list[ast.expr], known: Mapping[str, Any]) -> Any:
    """The same in every place, as in the branches of an ``if``; else None."""
    first, *others = (_value(value, known) for value in values)
    return first if all(other == first for other in others) else None


def _assignments(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            yield name, value
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            yield name, value
        case ast.For(target=target, iter=value):
            # Each is taken for all that it may be.
            yield from ((it.id, value) for it in ast.walk(target) if isinstance(it, ast.Name))


def _added(tree: ast.Module) -> Iterator[tuple[str, list[ast.expr]]]:
    """What is added to a list of a name: ``needs += […]``, ``needs.append(…)``."""
    for node in ast.walk(tree):
        match node:
            case ast.AugAssign(target=ast.Name(id=name), value=value):
                yield name, [value]
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=name), attr="append" | "extend" | "insert"),
                args=values,
            ):
                yield name, values[-1:]


def _entries(node: ast.AST) -> Iterator[tuple[str, str, ast.expr]]:
    """``about["name"] = …`` and ``about.update(name=…)``; unknown: what is changed in place, or has a
    computed key."""
    match node:
        case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=name), slice=key)], value=value):
            yield name, _key(key), value if _key(key) != _HIDDEN else _UNKNOWN
        case ast.AugAssign(target=ast.Subscript(value=ast.Name(id=name), slice=key)):
            yield name, _key(key), _UNKNOWN
        case ast.Call(
            func=ast.Attribute(value=ast.Subscript(value=ast.Name(id=name), slice=key), attr=attr)
        ) if attr in _CHANGES:
            yield name, _key(key), _UNKNOWN
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="setdefault")):
            yield name, _HIDDEN, _UNKNOWN
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id=name), attr="update"), args=more, keywords=words
        ):
            yield from ((name, _HIDDEN, one) for one in more)
            yield from ((name, word.arg or _HIDDEN, word.value) for word in words)


def _value(node: ast.expr, known: Mapping[str, Any]) -> Any:
    """A text, a list or a table of texts; None where it is computed."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.Name(id=name):
            return known.get(name)
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str() as key)):
            table = known.get(name)
            return table.get(key) if isinstance(table, dict) else None
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            parts = [_value(left, known), _value(right, known)]
            lists = [it for it in parts if isinstance(it, list)]
            return [*chain.from_iterable(lists)] if len(lists) == len(parts) else _joined(parts)
        case ast.JoinedStr(values=parts):
            return _joined([_value(part, known) for part in parts])
        case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
            return _value(value, known)
        case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
            return [one for element in elements for one in _elements(element, known)]
        case ast.Dict(keys=keys, values=values):
            return _table(zip(map(_key, keys), values, strict=True), known)
        case ast.Call(func=ast.Name(id="dict"), args=copied, keywords=keywords):
            named = [(one.arg or _HIDDEN, one.value) for one in keywords]
            return _table([*((_HIDDEN, one) for one in copied), *named], known)
        case ast.Call(func=ast.Name(id=name), args=[ast.Set() | ast.List() as inner]) if (
            name in _GATHERS
        ):
            return _value(inner, known)
        case _:
            return _gathered(node, known)


def _elements(node: ast.expr, known: Mapping[str, Any]) -> list[Any]:
    value = _value(node.value if isinstance(node, ast.Starred) else node, known)
    return value if isinstance(node, ast.Starred) and isinstance(value, list) else [value]


def _gathered(node: ast.expr, known: Mapping[str, Any]) -> list[str] | None:
    """The texts of the lists that an expression puts together (``sum(extras.values(), [])``), or of more;
    None if it may do anything else."""
    plain = {id(it) for at in ast.walk(node) if isinstance(at, _CHOOSES) for it in ast.walk(at)}
    nodes = [
        it
        for it in ast.walk(node)
        if not (isinstance(it, ast.List) and not it.elts)
        and not (isinstance(it, ast.Constant) and id(it) in plain)
    ]
    names = [it for it in nodes if isinstance(it, ast.Name)]
    loops = {it.id for it in names if isinstance(it.ctx, ast.Store)}
    used = {it.id for it in names} - loops - _GATHERS
    called = {
        getattr(it.func, "id", "") or getattr(it.func, "attr", "")
        for it in nodes
        if isinstance(it, ast.Call)
    }
    found = _flat([known.get(name) for name in used])
    is_read = called <= _GATHERS and all(isinstance(it, _GATHERING) for it in nodes)
    return found if used and is_read and None not in found else None


def _flat(values: Iterable[Any]) -> list[Any]:
    """The texts in lists and tables; None for what can't be read of them."""
    found: list[Any] = []
    for value in values:
        inner = value.values() if isinstance(value, dict) else _lines(value)
        found += _flat(inner) if isinstance(value, dict) else inner if inner is not None else [None]
    return found


def _key(node: ast.expr | None) -> str:
    match node:
        case ast.Constant(value=str() as text):
            return text
    return _HIDDEN


def _table(pairs: Iterable[tuple[str, ast.expr]], known: Mapping[str, Any]) -> dict[str, Any]:
    """A table with what other tables that can be read bring in (``{**about}``, ``dict(about)``)."""
    table: dict[str, Any] = {}
    for key, node in pairs:
        value = _value(node, known)
        is_copied = key == _HIDDEN and isinstance(value, dict)
        table |= value if is_copied else {key: None if key == _HIDDEN else value}
    return table


def _joined(parts: list[Any]) -> str | None:
    """Texts put together; None where one is no text, or the whole is longer than any name or address."""
    if not all(isinstance(part, str) for part in parts):
        return None
    return "".join(parts) if sum(map(len, parts)) <= _MAX_TEXT_CHARS else None
