"""Configuration by a host or the command line, and where things are."""

from pathlib import Path
from urllib.parse import urlsplit

from pydantic import Field, JsonValue, SecretStr

from fallback_audit.frozen import Frozen
from fallback_tier.budget.meter import BudgetLimits
from fallback_tier.configured import GateSettings
from fallback_tier.gates.builtin.proof_given import Proof
from fallback_tier.repo import AnswerForm, Settings, Strategy
from fallback_tier.wiring.trail import RecordSettings


class Configuration(Frozen):
    """What a host or the command line decides. Secrets are SecretStr: they don't print.

    ``api_key`` goes to the model's server, ``judge_api_key`` to the judge's; ``secrets`` are further
    values that no prompt may carry. Without a judge the grounding of a plan is not evaluated. ``price``:
    ``IN:OUT``, what a million tokens cost of a model that the price table doesn't have.
    """

    state_dir: Path
    record: RecordSettings = Field(default_factory=RecordSettings)
    model: str | None = None
    base_url: str | None = None
    api_key: SecretStr | None = None
    secrets: tuple[SecretStr, ...] = ()
    script: Path | None = None
    judge_model: str | None = None
    judge_base_url: str | None = None
    judge_api_key: SecretStr | None = None
    judge_script: Path | None = None
    examples: Path | None = None
    routing_floor: float | None = None
    sandbox_waiver: str | None = None
    budget: BudgetLimits = Field(default_factory=BudgetLimits)
    price: str | None = None
    settings: Settings = Field(default_factory=Settings)
    #: Gates of the user, instead of those that the base commit describes.
    gates: tuple[GateSettings, ...] | None = None
    proof: Proof | None = None
    #: A patch counts as done only if the project's tests were compared with the base commit's.
    require_tests: bool = False

    def recorded(self) -> dict[str, JsonValue]:
        """Return what a resumed fix needs of it, as JSON: no key, no password in a URL, no state folder."""
        absolute = self.model_copy(
            update={
                **{name: _absolute(getattr(self, name)) for name in _PATHS},
                **{name: without_password(getattr(self, name)) for name in _URLS},
                "model": _local(self.model),
                "judge_model": _local(self.judge_model),
            }
        )
        return absolute.without_keys()

    def without_keys(self) -> dict[str, JsonValue]:
        """Return it as JSON without keys, state folder and record; URLs may have passwords: for pipes
        only."""
        secret = {"api_key", "judge_api_key", "secrets", "state_dir", "record"}
        return self.model_dump(mode="json", exclude=secret)


_PATHS = ("script", "judge_script", "examples")
_URLS = ("base_url", "judge_base_url")

#: Prefix of the name of a model on this machine: ``local:FILE.gguf``.
LOCAL_PREFIX = "local:"

#: Form of a model's answer by default: no measurement favours another form.
ANSWER_FORM = AnswerForm.JSON

#: … and for a small model on this machine, whose server enforces either form: with blocks 12 of 12 first
#: answers were valid plans, with JSON 3 of 12 (docs/adr/0045-two-forms-of-an-answer.md).
LOCAL_ANSWER_FORM = AnswerForm.BLOCKS


def is_local(model: str | None) -> bool:
    """Return whether this is a model on this machine."""
    return (model or "").startswith(LOCAL_PREFIX)


def answer_form_for(model: str | None, strategy: Strategy = Strategy.STANDARD) -> AnswerForm:
    """Return the default form of an answer for a model of this name. Self-RAG supports JSON alone."""
    in_blocks = is_local(model) and strategy is Strategy.STANDARD
    return LOCAL_ANSWER_FORM if in_blocks else ANSWER_FORM


def _absolute(path: Path | None) -> Path | None:
    """Return an absolute path: a fix may be resumed from another folder."""
    return None if path is None else path.absolute()


def _local(model: str | None) -> str | None:
    if model is None or not model.startswith(LOCAL_PREFIX):
        return model
    return f"{LOCAL_PREFIX}{Path(model.removeprefix(LOCAL_PREFIX)).absolute()}"


def without_password(url: str | None) -> str | None:
    """Return a URL without its password. A caller that gave one gives it again to resume."""
    if url is None:
        return None
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
