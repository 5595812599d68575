"""Why a strategy did not work: what blocks, in the same words for every ecosystem (ADR-0105); and what
becomes of a package for which none worked."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import NoReturn
from urllib.parse import unquote, urlsplit

from fallback_audit.vocabulary import BlockerKind, LadderStep, RefusalReason
from fallback_plugins.shared.bumping import ADAPT, unsupported
from fallback_tier.advisory import Advisory
from fallback_tier.errors import RecipeError, RepositoryError
from fallback_tier.hosts import allow_step, host_in
from fallback_tier.outcome import (
    Blocker,
    Left,
    NotApplicable,
    StepDeclined,
    UnreadItem,
    declined_by,
)

#: What names the cause: who holds a package back, or that nothing safe is known.
_SIGNIFICANT = frozenset({RefusalReason.BLOCKED_BY_CONSTRAINT, RefusalReason.NO_FIXED_VERSION})


@dataclass
class Tried:
    """Collects the steps that did not serve, in order and each reason once."""

    steps: list[StepDeclined] = field(default_factory=list)
    errors: list[tuple[LadderStep, RecipeError]] = field(default_factory=list)

    def no(self, step: LadderStep, error: RecipeError | str, *, was_tried: bool = True) -> None:
        """This step did not serve. One that does not even apply is not what a package is left for."""
        message = error.problem if isinstance(error, RecipeError) else error
        blockers = error.blockers if isinstance(error, RecipeError) else ()
        declined = StepDeclined(step=step, reason=message, blockers=blockers)
        if declined in self.steps:
            return
        if isinstance(error, RecipeError) and was_tried:
            self.errors.append((step, error))
        self.steps.append(declined)

    @property
    def declined(self) -> tuple[StepDeclined, ...]:
        """For ``Move.declined`` and ``Left.declined``."""
        return tuple(self.steps)

    @property
    def refusal(self) -> RecipeError:
        """The most telling of what was said: the first that names a cause, or a runtime that a release does
        not support, else the last.

        That the project's own word keeps the lock from being refreshed tells nothing any more where that
        word was raised, and something else was in the way.
        """
        raised = any(step is LadderStep.DIRECT_BUMP for step, _ in self.errors)
        errors = [
            error for step, error in self.errors if not (raised and step is LadderStep.LOCK_REFRESH)
        ]
        named = [error for error in errors if error.reason in _SIGNIFICANT]
        by_runtime = [
            error
            for error in errors
            if any(it.kind is BlockerKind.RUNTIME for it in error.blockers)
        ]
        if errors:
            return (named or by_runtime or errors[-1:])[0]
        message = self.steps[-1].reason if self.steps else "No step of the ladder fixes it."
        return does_not_serve(message)


def left_behind(
    advisory: Advisory,
    ecosystem: str,
    package: str,
    versions: Iterable[str],
    *,
    manifest: str,
    error: RecipeError,
    tried: Tried | None = None,
) -> Left:
    """Return a package that no step fixes, with the steps that were tried or, without any, what blocks."""
    ids = {
        found: None
        for version in versions
        for found in advisory.ids_affecting(ecosystem, package, version)
    }
    return Left(
        package=package,
        manifest=manifest,
        advisory_ids=tuple(ids),
        reason=error.reason,
        sentence=error.problem,
        next_step=error.next_step,
        declined=tried.declined if tried else declined_by(error),
        kind=error.kind,
    )


def whole_project_left(path: str, error: RecipeError | RepositoryError) -> Left:
    """A project that could not be read or resolved, as something left; ``path`` empty: all of them."""
    why = NotApplicable.of(error)
    return Left(
        package="",
        manifest=path or None,
        reason=why.reason,
        sentence=error.problem,
        next_step=error.next_step,
        unread=why.unread,
        declined=why.declined,
        kind=error.kind,
    )


def refuse(left: Left) -> NoReturn:
    """Raise the refusal of a single advisory: what is left of it."""
    raise error_of(left)


def error_of(left: Left) -> RecipeError:
    """Return the refusal to fix what is left."""
    return RecipeError(
        left.reason,
        left.sentence,
        next_step=left.next_step,
        unread=left.unread,
        declined=left.declined,
        kind=left.kind,
    )


#: What a conflict calls the project itself, whose own declaration is in the way.
PROJECT = "the project"

#: Words of a client that could not reach a registry, and what they mean.
_UNREACHABLE = {
    "refused the connection": r"ECONNREFUSED|Connection refused",
    "no such host": r"ENOTFOUND|EAI_AGAIN|dns error",
    "no answer in time": r"ETIMEDOUT|ESOCKETTIMEDOUT|ERR_SOCKET_TIMEOUT|operation timed out",
    "the connection broke": r"ECONNRESET|EPIPE|error sending request|socket hang up",
    "its certificate is not accepted": r"UNABLE_TO_\w+|SELF_SIGNED_\w+|CERT_\w+|invalid peer certificate",
}
_STATUS = re.compile(
    r"(?:code E|ERR_PNPM_FETCH_|error \(|credentials \(|returned a |Request failed \")"
    r"(?P<status>[45]\d\d)\b"
)
_ADDRESS = re.compile(r"https?://(?!yarnpkg\.com/)[^\s()\"'`,]+")
_HOST = re.compile(r"(?:ECONNREFUSED|ENOTFOUND|EAI_AGAIN) (?P<host>[\w.-]+(?::\d+)?)")

#: ``fallback_tier.hosts.NamedHost.sentence``. A word is tried at its beginning only: linear time.
_NAMED_BY = re.compile(r"(?<!\S)(\S+) is named by (\S+) and")

#: The option that lets a client ask a host which only a repository names.
_ALLOWING = "--allow-host"

#: Most of a client's output that a refusal repeats (characters), where nothing in it names a cause.
_MAX_QUOTE = 300


def describe(blocker: Blocker) -> str:
    """Return the clause that names what blocks, its constraint and the file."""
    one = blocker
    package, host = one.package, one.host or "The registry"
    by = f", which {one.required_by} requires" if one.required_by else ""
    match one.kind:
        case BlockerKind.CONFLICT:
            text = f"{package} requires {one.constraint}"
        case BlockerKind.NOT_PUBLISHED:
            text = f"the registry has no {f'{package} {one.constraint}'.strip()}{by}"
        case BlockerKind.REGISTRY if one.setting.startswith(_ALLOWING):
            by = one.file or "what a package requires"
            why = "and not by your own configuration, so it was not asked"
            return f"{host} is named by {by} {why} ({one.setting})"
        case BlockerKind.REGISTRY if one.status:
            of = f" about {package}" if package else ""
            text = f"{host} answered {one.status}{of}{by} (setting: {one.setting})"
        case BlockerKind.REGISTRY:
            text = f"{host} could not be asked: {one.constraint} (setting: {one.setting})"
        case BlockerKind.AGE_RULE:
            text = f"{one.constraint} does not admit {package}"
        case BlockerKind.RUNTIME:
            text = f"{package} requires {one.constraint}{by and f', and {one.required_by}'}"
        case BlockerKind.ADDRESS:
            text = f"{package} comes from {one.constraint}{by}, and no address is fetched"
        case BlockerKind.NOT_BUILT:
            text = f"{package} has no wheel, and nothing is built{by}"
        case BlockerKind.RESULT | BlockerKind.CLIENT | BlockerKind.UNREADABLE:
            text = f"{package} {one.constraint}".strip()
    return f"{text} ({one.file})" if one.file else text


def _step(blocker: Blocker) -> str:
    """Return what to do about it."""
    one, file = blocker, blocker.file or "the manifest"
    name, setting = one.package.partition(" ")[0], one.setting or "registry"
    match one.kind:
        case BlockerKind.CONFLICT if one.package == PROJECT:
            return f"Raise that declaration in {file}."
        case BlockerKind.CONFLICT:
            return f"Upgrade {name} to a release that admits it, or replace {name}."
        case BlockerKind.NOT_PUBLISHED | BlockerKind.NOT_BUILT:
            by = one.required_by.partition(" ")[0] if one.required_by != PROJECT else ""
            return f"Require another release of {by or name} in {file}."
        case BlockerKind.REGISTRY if one.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            return f"Give your own configuration credentials for {one.host} (setting: {setting})."
        case BlockerKind.REGISTRY if one.status == HTTPStatus.NOT_FOUND:
            return f"Correct its name in {file}, or name the registry that has it (setting: {setting})."
        case BlockerKind.REGISTRY if one.status:
            return f"Try again later, or name another registry (setting: {setting})."
        case BlockerKind.REGISTRY:
            return f"Correct that setting ({setting}) or the proxy, or try again when {one.host} answers."
        case BlockerKind.AGE_RULE:
            return "Wait until it is old enough, or make an exception to that rule."
        case BlockerKind.RUNTIME:
            return f"Raise the supported versions in {file}, or require another release of {name}."
        case BlockerKind.ADDRESS:
            parent = one.required_by.partition(" ")[0] if one.required_by != PROJECT else name
            return f"Use a release of {parent} that takes {name} from a registry."
        case BlockerKind.RESULT:
            return f"Require another release of {name} in {file}." if name else ADAPT
        case BlockerKind.UNREADABLE:
            return f"Repair {file}, or remove it."
        case BlockerKind.CLIENT:
            return f"Run that client with a copy of {file} to see all that it prints."


def refused_for(
    blocker: Blocker, *others: Blocker, head: str = "", next_step: str = "", kind: str = ""
) -> RecipeError:
    """Return the typed refusal that says what blocks. ``head``: what could not be done.

    Its kind is the blocker's, unless ``kind`` is more specific.
    """
    conflict = blocker.kind is BlockerKind.CONFLICT
    reason = RefusalReason.BLOCKED_BY_CONSTRAINT if conflict else RefusalReason.RESOLVER_FAILED
    clauses = "; ".join(dict.fromkeys(map(describe, (blocker, *others))))
    problem = f"{head}: {clauses}." if head else f"{_capital(clauses)}."
    return RecipeError(
        reason,
        problem,
        next_step=next_step or _step(blocker),
        blockers=(blocker, *others),
        kind=kind or blocker.kind.value,
    )


def _capital(clause: str) -> str:
    """A sentence's beginning, unless it is a package's name."""
    return f"T{clause[1:]}" if clause.startswith("the ") else clause


def client_refused(
    head: str,
    words: str,
    blockers: Sequence[Blocker],
    hosts: Sequence[str] = (),
    file: str = "",
) -> RecipeError:
    """Return the refusal of a client that could not do what ``head`` says: with what blocks, or, if its
    output names no known cause, with the first part of its ``words``. ``hosts``: those that it may not ask.
    ``file``: the project's."""
    found = [*blockers]
    if hosts:
        named = dict(_NAMED_BY.findall(words))
        kind = BlockerKind.REGISTRY
        found = [
            Blocker(kind=kind, host=it, setting=f"{_ALLOWING} {it}", file=named.get(it, ""))
            for it in hosts
        ]
    elif not found:
        quote = " ".join(words.split())[:_MAX_QUOTE].strip(" ;.") or "it printed nothing"
        found = [Blocker(kind=BlockerKind.CLIENT, constraint=quote, file=file)]
    return refused_for(*found, head=head, next_step=allow_step(hosts) if hosts else "")


def registry_blocker(output: str, setting: str, package: str = "") -> Blocker | None:
    """Return the failure of a registry that a client's output reports, with the host; None: none."""
    address, host = _ADDRESS.search(output), _HOST.search(output)
    status = _STATUS.search(output)
    url = address[0].rstrip("./:") if address else ""
    why = next((why for why, words in _UNREACHABLE.items() if re.search(words, output)), "")
    if not status and not why:
        return None
    return Blocker(
        kind=BlockerKind.REGISTRY,
        package=package or unquote(urlsplit(url).path.rpartition("/")[2]),
        constraint="" if status else why,
        host=host_in(url) if url else (host["host"] if host else ""),
        setting=setting,
        status=int(status["status"]) if status else None,
    )


def blocked(package: str, version: str, *, parent: str, spec: str, where: str) -> RecipeError:
    """The typed refusal that names the constraint, the parent that makes it, and the file."""
    constraint = f"{package} {spec}"
    step = f"Upgrade {parent} to a release that admits {package} {version}, or replace it."
    if parent == PROJECT:
        step = f"Raise the declaration of {package} in {where}."
    blocker = Blocker(kind=BlockerKind.CONFLICT, package=parent, constraint=constraint, file=where)
    return RecipeError(
        RefusalReason.BLOCKED_BY_CONSTRAINT,
        f"{parent} in {where} requires {constraint}, which does not admit {version}.",
        next_step=step,
        blockers=(blocker,),
    )


def does_not_apply(problem: str, package: str, parent: str, spec: str, where: str) -> RecipeError:
    """The refusal to even try a step: who requires the package, and the file that declares it."""
    constraint = f"{package} {spec}".strip()
    kind = BlockerKind.CONFLICT
    blocker = Blocker(kind=kind, package=parent, constraint=constraint, file=where)
    return unsupported(problem, f"Look at what requires {package} in {where}.", blocker)


def unknown(
    path: str, problem: str, *, next_step: str, blockers: Sequence[Blocker] = ()
) -> RecipeError:
    """Return the refusal to call a project clean: whether it is affected can't be decided, since the source
    at ``path`` was not read or resolved."""
    item = UnreadItem(path=path, reason=problem, next_step=next_step)
    return RecipeError(
        RefusalReason.UNKNOWN, problem, next_step=next_step, unread=(item,), blockers=blockers
    )


def does_not_serve(problem: Blocker | str, *, kind: str = "") -> RecipeError:
    """The typed refusal of a result: a client resolved it, and it is not what a fix may be."""
    if isinstance(problem, str):
        problem = Blocker(kind=BlockerKind.RESULT, constraint=problem.rstrip("."))
    return refused_for(problem, kind=kind)
