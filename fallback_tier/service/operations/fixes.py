"""Fixes of the service: submit, list, show, cancel, resume; the patch and the evidence of one."""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from fallback_audit.event_types import Digest
from fallback_audit.evidence.checking import kept_digests, private_digests
from fallback_audit.frozen import Frozen
from fallback_audit.vocabulary import AffectedCode
from fallback_tier.advisory import parse_advisory
from fallback_tier.repo import new_id
from fallback_tier.service.operations.record import TrailAndEvidence
from fallback_tier.service.queue import (
    NewOrder,
    Order,
    OrderLine,
    OrderQueue,
    OrderState,
    Submission,
    Token,
)
from fallback_tier.service.refusals import NotAllowedError, NotFoundError, NotServedError
from fallback_tier.service.roles import Caller, Role
from fallback_tier.workers.tables import RepositorySettings

#: Maximum number of fixes on one page of a list.
MAX_PAGE = 100


class Repository(Frozen):
    """A repository that may be named. Where it lies on this machine is not told."""

    name: str
    ref: str | None = None
    is_remote: bool = False


class Fix(OrderLine):
    """A submitted fix, whole. ``ended``: the document that ``fallback-tier fix --json`` prints.

    ``cached``: the request that it answers was taken before, by its Idempotency-Key.
    """

    ref: str | None = None
    whose_code: AffectedCode | None = None
    offline: bool = False
    cached: bool = False
    ended: dict[str, JsonValue] | None = None


class EvidenceItem(Frozen):
    """Evidence that a fix's record names. ``private``: raw prompts or answers, for admins alone."""

    sha256: Digest
    seq: int
    kind: str
    private: bool | None = None


@dataclass(frozen=True)
class Fixes:
    """The fixes of one service. ``wake`` is called after a change that the dispatcher should see."""

    queue: OrderQueue
    record: TrailAndEvidence
    repositories: Mapping[str, RepositorySettings]
    ecosystems: Collection[str]
    wake: Callable[[], None]

    def repositories_named(self) -> tuple[Repository, ...]:
        """Return the repositories that a submission may name."""
        return tuple(
            Repository(name=name, ref=settings.ref, is_remote=settings.url is not None)
            for name, settings in sorted(self.repositories.items())
        )

    def submit(self, caller: Caller, submission: Submission, token: Token | None = None) -> Fix:
        """Queue a submission; it is durable when this returns.

        Raises NotServedError for a repository or an ecosystem that this service does not know;
        AdvisoryError; ConflictError and BusyError as the queue does.
        """
        self.repository(submission.repository)
        advisory = parse_advisory(_bytes(submission.advisory), "advisory")
        if not set(advisory.ecosystems) & set(self.ecosystems):
            raise NotServedError(
                f"{advisory.id} is about {', '.join(advisory.ecosystems)}, and no plugin here supports it.",
                next_step=f"Installed are {', '.join(sorted(self.ecosystems))}.",
                kind="no_plugin",
            )
        order = NewOrder(
            fix_id=new_id("fix"), submission=submission, advisory_id=advisory.id, by=caller.name
        )
        accepted = self.queue.submit(order, token)
        self.wake()
        return whole(accepted.order, cached=accepted.cached)

    def repository(self, name: str) -> RepositorySettings:
        """Return a repository's settings. Raises NotServedError."""
        if name not in self.repositories:
            raise NotServedError(
                f"There is no repository {name!r} in this service's configuration.",
                next_step="GET /v1/repositories lists those that can be named.",
                kind="no_such_repository",
            )
        return self.repositories[name]

    def page(
        self,
        *,
        before: int | None,
        limit: int,
        state: OrderState | None = None,
        repository: str | None = None,
    ) -> tuple[OrderLine, ...]:
        """Return submitted fixes, the newest first."""
        limit = min(limit, MAX_PAGE)
        return self.queue.page(before=before, limit=limit, state=state, repository=repository)

    def show(self, fix_id: str) -> Fix:
        """Return a fix. Raises NotFoundError."""
        return whole(self.queue.get(fix_id))

    def cancel(self, caller: Caller, fix_id: str) -> Fix:
        """Cancel a fix. Raises NotFoundError, ConflictError."""
        order = self.queue.cancel(fix_id, caller.name)
        self.wake()
        return whole(order)

    def resume(self, caller: Caller, fix_id: str) -> Fix:
        """Queue a fix again; it continues from the audit trail. Raises NotFoundError, ConflictError."""
        order = self.queue.resume(fix_id, caller.name)
        self.wake()
        return whole(order)

    def patch(self, fix_id: str) -> str:
        """Return the proved patch. Raises NotFoundError if there is none, or not yet."""
        order = self.queue.get(fix_id)
        application = (order.ended or {}).get("application")
        if not isinstance(application, dict):
            raise NotFoundError(
                f"Fix {fix_id} has no proved patch: it is {order.outcome or order.state}.",
                next_step=f"GET /v1/fixes/{fix_id} shows its state.",
                kind="no_patch",
            )
        return str(application["diff"])

    def evidence_of(self, fix_id: str) -> tuple[EvidenceItem, ...]:
        """Return the evidence that a fix's audit trail obliges the store to keep, each once. Fixes from
        a terminal have it, too. Raises NotFoundError.
        """
        events = self.record.events(fix_id)
        if not events:
            # Submitted, and nothing is recorded yet; otherwise there is no such fix.
            self.queue.get(fix_id)
        private = {digest for stored in events for digest in private_digests(stored.payload)}
        item_by_digest: dict[Digest, EvidenceItem] = {}
        for stored in events:
            for digest in kept_digests(stored.payload):
                item = EvidenceItem(
                    sha256=digest, seq=stored.seq, kind=stored.kind, private=digest in private
                )
                item_by_digest.setdefault(digest, item)
        return tuple(item_by_digest.values())

    def evidence(self, caller: Caller, fix_id: str, digest: Digest) -> bytes:
        """Return one piece of evidence, which the fix's audit trail must name.

        Raises NotFoundError; NotAllowedError if it is private and the caller is not an admin; EvidenceError
        if it was deleted.
        """
        item = next((entry for entry in self.evidence_of(fix_id) if entry.sha256 == digest), None)
        if item is None:
            raise NotFoundError(
                f"The record of fix {fix_id} names no evidence {digest[:12]}….",
                next_step=f"GET /v1/fixes/{fix_id}/evidence lists what it names.",
                kind="no_such_evidence",
            )
        if item.private and not caller.may(Role.ADMIN):
            raise NotAllowedError(
                "This is what a model was asked or answered, word for word: admins alone may read it.",
                next_step="Ask for a key with the role admin.",
            )
        return self.record.evidence.get(digest)


def whole(order: Order, *, cached: bool = False) -> Fix:
    """Return a fix for a response: without the advisory, which the caller has."""
    facts = {name: getattr(order, name) for name in OrderLine.model_fields}
    submission = order.submission
    return Fix(
        **facts,
        ref=submission.ref,
        whose_code=submission.whose_code,
        offline=submission.offline,
        cached=cached,
        ended=order.ended,
    )


def _bytes(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode()
