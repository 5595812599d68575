"""Recorded model traffic: replay that fails loudly, recording that stores no secret.

Playing is strict. A request that is not the recorded one (method, path, query, body) raises
CassetteMismatch with the first difference, and so does a cassette that was not played to its end: a test or
a demo can't pass on traffic that it did not send. The server's address (host, port, the path before
``/v1/``) is not compared.

Recording keeps headers by allow-list, replaces the server's address by a neutral one, stores what was
recorded, when and from what inside the cassette (``metadata``), and writes nothing if a body shows a
secret. A stream is recorded and replayed whole: live streaming is tested on a real server.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import urlsplit

from fallback_audit.vocabulary import Provenance
from fallback_tier.errors import ConfigurationError
from fallback_tier.ports import LanguageModel, NonceSource

if TYPE_CHECKING:
    from vcr.cassette import Cassette


#: Characters shown on each side of the first difference.
_SHOWN: Final = 60

#: The address in a cassette: a name that never resolves (RFC 2606).
NEUTRAL_HOST: Final = "model.invalid"

#: Address that a replaying author gets. Nothing is sent there.
REPLAY_URL: Final = f"http://{NEUTRAL_HOST}"

#: Headers that a cassette keeps; all others are dropped, known or not.
KEPT_HEADERS: Final = frozenset({"content-type", "anthropic-version"})

#: Key of a cassette's facts about itself.
_PROVENANCE_KEY: Final = "provenance"

#: Facts that each cassette must have: the model as its server knows it, who answered, and the day.
REQUIRED_FACTS: Final = ("model", "server", "recorded")

_MODEL_PATH: Final = re.compile(rb'("model"\s*:\s*")(?:[^"]*/)([^"/]+\.gguf")')

_API_ROOT: Final = "/v1/"

_MATCHED: Final = ("method", "path", "query", "body")

_RECORD_AGAIN: Final = "If the change is meant, record the cassette again (`make record`)."


@dataclass(frozen=True)
class SentRequest:
    """A request as sent in this run. ``body`` is the decoded JSON."""

    method: str
    path: str
    body: Mapping[str, Any]

    @property
    def prompt(self) -> str:
        """Everything that the model is given to read: system blocks, then messages."""
        parts = [self.body.get("system", ())]
        parts += [turn["content"] for turn in self.body.get("messages", ())]
        blocks = [[{"text": part}] if isinstance(part, str) else part for part in parts]
        return "\n".join(block["text"] for part in blocks for block in part)


def _sent_request(request: Any) -> SentRequest:
    """Convert vcrpy's request; a body that is not a JSON object becomes an empty one."""
    try:
        body = json.loads(request.body or b"{}")
    except ValueError:
        body = {}
    return SentRequest(request.method, request.path, body if isinstance(body, dict) else {})


def _first_difference(recorded: Any, sent: Any, path: str) -> str | None:
    if isinstance(recorded, dict) and isinstance(sent, dict):
        for key in sorted(recorded.keys() | sent.keys()):
            difference = _first_difference(recorded.get(key), sent.get(key), f"{path}.{key}")
            if difference is not None:
                return difference
        return None
    if isinstance(recorded, list) and isinstance(sent, list) and len(recorded) == len(sent):
        for number, (old, new) in enumerate(zip(recorded, sent, strict=True)):
            difference = _first_difference(old, new, f"{path}[{number}]")
            if difference is not None:
                return difference
        return None
    if recorded == sent:
        return None
    at = 0
    if isinstance(recorded, str) and isinstance(sent, str):
        pairs = zip(recorded, sent, strict=False)
        at = next(
            (n for n, (old, new) in enumerate(pairs) if old != new), min(map(len, (recorded, sent)))
        )
        start = max(0, at - _SHOWN // 2)
        recorded, sent = recorded[start : at + _SHOWN], sent[start : at + _SHOWN]
    return (
        f"at {path} (character {at}) {str(recorded)[:120]!r} was recorded, {str(sent)[:120]!r} sent"
    )


def secrets_in(body: bytes | str, known_secrets: frozenset[str]) -> int:
    """Return how many secrets a body shows: values in ``known_secrets``, and text in a secret's format.

    A stream is read event by event and, since a secret may be cut across pieces, as the text that they
    make.
    """
    from fallback_tier.prompt.redact import redact_secrets  # imported for recording only

    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
    return sum(redact_secrets(part, known_secrets)[1] for part in _texts(text))


def _texts(body: str) -> Iterator[str]:
    """Yield each string value separately: a key of the format (``max_tokens``) is not a secret's name."""
    lines = body.splitlines()
    data = [line.removeprefix("data:") for line in lines if line.startswith("data:")]
    try:
        documents = [json.loads(document) for document in data or [body]]
    except ValueError:
        yield body
        return
    if data:
        yield "\n".join(line for line in lines if not line.startswith("data:"))
    for document in documents:
        yield from _strings(document)
    yield "".join(_pieces(documents))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)


def _pieces(documents: list[Any]) -> Iterator[str]:
    for document in documents:
        match document:
            case {"delta": {"text": str(text)}}:
                yield text


class CassetteMismatch(ConfigurationError):  # noqa: N818 (the name says what happened)
    """The traffic that was sent is not what was recorded, or not all of it was sent."""

    code: ClassVar[str] = "cassette_mismatch"


@dataclass
class Tape:
    """One use of a cassette. ``requests`` are those sent in this run, never those of the file.

    ``enforces_schema``: the recorded requests carry a schema, as those to the provider do.
    """

    requests: list[SentRequest] = field(default_factory=list)
    provenance: Mapping[str, str] = field(default_factory=dict)
    mismatch: CassetteMismatch | None = None
    enforces_schema: bool = False


@contextmanager
def use_cassette(
    path: Path,
    *,
    record: bool = False,
    provenance: Mapping[str, str] | None = None,
    secrets: frozenset[str] = frozenset(),
) -> Iterator[Tape]:
    """Play ``path``, or record it again with ``provenance`` (REQUIRED_FACTS, model hash, …) inside.

    ``secrets`` are values that this process knows. A recording that shows one, or text in a secret's
    format, is not written, nor is one whose block raised: the old cassette stays.

    Raises CassetteMismatch, also if the block swallowed one that was raised inside it; ConfigurationError
    if the file is missing or holds nothing, if vcrpy is not installed, or if a recording shows a secret or
    lacks facts.
    """
    _check(path, provenance or {}, record=record)
    # A recording replaces the old one only when it is whole.
    cassette_path = path.with_name(f"{path.name}.recording") if record else path
    if record:
        cassette_path.unlink(missing_ok=True)
    tape = Tape()
    context = _strict_cassette(tape, recording=record).use(
        path=str(cassette_path),
        record_mode=_record_mode(recording=record),
        match_on=_matchers(),
        before_record_request=_scrub_request,
        before_record_response=_scrub_response,
        record_on_exception=False,
    )
    with _opened(context, path) as cassette:
        tape.provenance = _provenance(cassette, path, provenance or {})
        tape.enforces_schema = any(
            "output_config" in _sent_request(r).body for r in cassette.requests
        )
        try:
            yield tape
        except Exception as error:
            if tape.mismatch is not None and error is not tape.mismatch:
                raise tape.mismatch from error
            raise
        if tape.mismatch is not None:
            raise tape.mismatch
        if record:
            _check_bodies(cassette, path, secrets)
        elif not cassette.all_played:
            raise CassetteMismatch(
                f"{cassette.play_count} of {len(cassette)} recorded requests of {path.name} were "
                "sent; the others were not.",
                next_step=_RECORD_AGAIN,
                kind="not_all_sent",
            )
    if record:
        cassette_path.replace(path)


def recorded_nonces() -> NonceSource:
    """Return a source of the nonces that recordings use: the same in each run, so that requests are too."""
    count = 0

    def nonce() -> str:
        nonlocal count
        count += 1
        return hashlib.sha256(f"cassette nonce {count}".encode()).hexdigest()[:32]

    return nonce


@contextmanager
def replayed_author(path: Path) -> Iterator[LanguageModel]:
    """Yield a ClaudeModel whose traffic comes from a cassette, labelled as replayed."""
    from fallback_plugins.messages_api.model import ClaudeModel

    with use_cassette(path) as tape:
        yield ClaudeModel(
            tape.provenance.get("model", "unknown"),
            base_url=REPLAY_URL,
            provenance=Provenance.REPLAYED,
            max_retries=0,
            enforces_schema=tape.enforces_schema,
        )


def check_extra() -> None:
    """Raise ConfigurationError if vcrpy is not installed."""
    if find_spec("vcr") is None:
        raise ConfigurationError(
            "Recorded traffic needs vcrpy, which is not installed.",
            next_step="pip install 'fallback-tier[demo]'",
            kind="no_vcrpy",
        )


def _strict_cassette(tape: Tape, *, recording: bool) -> "type[Cassette]":
    check_extra()
    from vcr.cassette import Cassette

    class Strict(Cassette):  # type: ignore[misc] # vcrpy has no types
        """A cassette that is checked once per request, before anything is sent."""

        def can_play_response_for(self, request: Any) -> bool:
            tape.requests.append(_sent_request(request))
            if recording:
                return False
            playable = bool(super().can_play_response_for(request))
            if not playable:
                tape.mismatch = tape.mismatch or _mismatch(self, tape.requests)
                raise tape.mismatch
            return playable

    return Strict


def _check(path: Path, provenance: Mapping[str, str], *, record: bool) -> None:
    if not record and not path.is_file():
        raise ConfigurationError(f"There is no cassette at {path}.", next_step=_RECORD_AGAIN)
    missing = [fact for fact in REQUIRED_FACTS if not provenance.get(fact)]
    if record and missing:
        raise ConfigurationError(
            f"A recording must say what it is, and {path.name} would not: {', '.join(missing)}.",
            next_step="Pass these facts as its provenance.",
            kind="facts_missing",
        )


def _check_bodies(cassette: Any, path: Path, secrets: frozenset[str]) -> None:
    """Check that bodies and addresses show no secret: unlike headers, they go into the file unchanged."""
    bodies: list[bytes | str] = [request.body or b"" for request in cassette.requests]
    bodies += [request.uri for request in cassette.requests]
    bodies += [response["body"]["string"] for response in cassette.responses]
    if shown := sum(secrets_in(body, secrets) for body in bodies):
        raise ConfigurationError(
            f"{path.name} was not written: its traffic shows what looks like {shown} secret(s).",
            next_step="Take the secret out of what the prompt is made from, and record again.",
            kind="secret",
        )


@contextmanager
def _opened(context: Any, path: Path) -> Iterator[Any]:
    """Yield the cassette. Raises ConfigurationError, before the block, if the file is not a cassette."""
    import yaml

    with ExitStack() as stack:
        try:
            cassette = stack.enter_context(context)
        except (ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError) as error:
            raise ConfigurationError(
                f"{path} is not a cassette of recorded traffic.", next_step=_RECORD_AGAIN
            ) from error
        yield cassette


def _provenance(cassette: Any, path: Path, of_recording: Mapping[str, str]) -> Mapping[str, str]:
    """Return the facts that a recording stores, or that a replay must have to be played."""
    from vcr.errors import MissingMetadataError

    try:
        stored: Mapping[str, str] = cassette.get_metadata(_PROVENANCE_KEY, dict(of_recording))
    except MissingMetadataError as error:
        raise ConfigurationError(
            f"{path} holds no traffic, or does not say where it comes from.",
            next_step=_RECORD_AGAIN,
        ) from error
    return stored


def _record_mode(*, recording: bool) -> Any:
    from vcr.record_mode import RecordMode

    return RecordMode.ALL if recording else RecordMode.NONE


def _matchers() -> tuple[Any, ...]:
    from vcr import matchers

    return tuple(getattr(matchers, name) for name in _MATCHED)


def _scrub_request(request: Any) -> Any:
    headers = {
        name: value for name, value in request.headers.items() if name.lower() in KEPT_HEADERS
    }
    parts = urlsplit(request.uri)
    scrubbed = type(request)(request.method, request.uri, request.body, headers)
    # The path that a gateway has before the API's own is part of its address too, and may be a key.
    api_path = parts.path[max(0, parts.path.rfind(_API_ROOT)) :]
    scrubbed.uri = parts._replace(scheme="http", netloc=NEUTRAL_HOST, path=api_path).geturl()
    return scrubbed


def _scrub_response(response: dict[str, Any]) -> dict[str, Any]:
    from vcr.filters import decode_response

    plain: dict[str, Any] = decode_response(response)
    headers = plain["headers"].items()
    plain["body"]["string"] = _without_server_path(plain["body"]["string"])
    plain["headers"] = {name: value for name, value in headers if name.lower() in KEPT_HEADERS}
    return plain


def _without_server_path(body: bytes) -> bytes:
    """Remove the folder from a model's name: a local server's is the file's path, which is private."""
    return _MODEL_PATH.sub(rb"\1\2", body)


def _mismatch(cassette: Any, sent: list[SentRequest]) -> CassetteMismatch:
    """Return the mismatch with the recorded request of the same number: traffic is a sequence."""
    number, kind = len(sent), "another_request"
    name = Path(cassette.path).name
    if number > len(cassette):
        problem = f"{name} holds {len(cassette)} requests, and this is request {number}."
        kind = "request_too_many"
    else:
        recorded = _sent_request(cassette.requests[number - 1])
        difference = _first_difference(recorded.body, sent[-1].body, "body") or "method or path"
        problem = f"Request {number} is not the one recorded in {name}: {difference}."
    return CassetteMismatch(problem, next_step=_RECORD_AGAIN, kind=kind)
