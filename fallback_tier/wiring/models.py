"""The configured models, the memory, and the LLM leaf that uses them."""

import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pydantic import SecretStr

from fallback_audit.ports import AuditStore, EvidenceStore
from fallback_tier.errors import ConfigurationError, SettingMissingError
from fallback_tier.ports import LanguageModel, NonceSource, SolvedExampleRetriever
from fallback_tier.repo import AnswerForm, Strategy
from fallback_tier.wiring.configuration import LOCAL_PREFIX, Configuration, is_local

if TYPE_CHECKING:
    from fallback_tier.budget.limiter import CallLimiter
    from fallback_tier.budget.prices import Prices
    from fallback_tier.llm.leaf import LlmLeaf


class _Role(NamedTuple):
    what: str
    model_option: str
    url_option: str
    key_variable: str = "ANTHROPIC_API_KEY"


_AUTHOR = _Role("Model", "--model", "--base-url")
_JUDGE = _Role("Judge", "--judge-model", "--judge-base-url")

#: Random bytes of a fence nonce (128 bits: the end of a fence can't be guessed, ADR-0010).
NONCE_BYTES = 16


def random_nonce() -> str:
    """Return a new fence nonce."""
    return secrets.token_hex(NONCE_BYTES)


def build_author(configuration: Configuration) -> LanguageModel | None:
    """Return the model that writes plans: a script, a model on this machine or on a Messages API server, or
    None.

    Raises ConfigurationError for a model without a key on the provider's own server.
    """
    return _model(
        configuration.script,
        configuration.model,
        configuration.base_url,
        configuration.api_key,
        _AUTHOR,
        # Self-RAG asks its author for several things, concurrently.
        holds_to_schema=configuration.settings.strategy is Strategy.STANDARD,
    )


def build_judge(configuration: Configuration) -> LanguageModel | None:
    """Return the model that judges grounding, preferably not the author's; None: grounding is not judged.

    Raises ConfigurationError as ``build_author`` does.
    """
    return _model(
        configuration.judge_script,
        configuration.judge_model,
        configuration.judge_base_url,
        configuration.judge_api_key,
        _JUDGE,
    )


def build_models(
    configuration: Configuration, author: LanguageModel | None, limiter: "CallLimiter | None"
) -> tuple[LanguageModel | None, LanguageModel | None]:
    """Return author and judge, behind the limiter if there is one. ``author`` replaces the configured one.
    Raises ConfigurationError."""
    author, judge = author or build_author(configuration), build_judge(configuration)
    if limiter is None:
        return author, judge
    from fallback_tier.budget.limiter import LimitedModel

    return (
        None if author is None else LimitedModel(author, limiter),
        None if judge is None else LimitedModel(judge, limiter),
    )


def build_retriever(configuration: Configuration) -> SolvedExampleRetriever | None:
    """Return the memory of solved examples, if one is configured."""
    if configuration.examples is None:
        return None
    if not configuration.examples.exists():
        raise SettingMissingError(
            f"There is no example store at {configuration.examples}.",
            next_step="Make one with `fallback-tier examples ingest`, or leave --examples out.",
        )
    from fallback_plugins.solved_examples.search.retriever import open_index

    return open_index(configuration.examples, routing_floor=configuration.routing_floor)


def build_leaf(
    configuration: Configuration,
    author: LanguageModel,
    judge: LanguageModel | None,
    retriever: SolvedExampleRetriever | None,
    nonces: NonceSource,
    audit: AuditStore,
    evidence: EvidenceStore,
) -> "LlmLeaf":
    """Return the LLM tier with its meter, judge, journal and prompts."""
    from fallback_tier.budget.audited import AuditMeter
    from fallback_tier.budget.journal import AuditJournal
    from fallback_tier.llm.judging import PlanJudge
    from fallback_tier.llm.leaf import LlmLeaf
    from fallback_tier.prompt.builder import PromptBuilder

    all_secrets = (
        *configuration.secrets,
        *filter(None, [configuration.api_key, configuration.judge_api_key]),
    )
    values = frozenset(secret.get_secret_value() for secret in all_secrets)
    meter = AuditMeter(audit, configuration.budget, prices(configuration))
    self_rag = None
    if configuration.settings.strategy is Strategy.SELF_RAG:
        from fallback_tier.llm.selfrag import SelfRag
        from fallback_tier.prompt.self_rag import SelfRagPrompts

        # If there is a judge, it is the critic: an author is lenient with itself.
        prompts = SelfRagPrompts(nonces, values)
        self_rag = SelfRag(author, judge or author, prompts, retriever, evidence, meter)
    return LlmLeaf(
        author,
        PromptBuilder(nonces, values),
        evidence=evidence,
        judge=None if judge is None else PlanJudge(judge, nonces, evidence, values),
        meter=meter,
        journal=AuditJournal(audit, evidence),
        keep_prompts=configuration.record.keep_prompts,
        held_author=is_local(configuration.model),
        self_rag=self_rag,
    )


def prices(configuration: Configuration) -> "Prices":
    """Return prices: the price table, the configured price, and list prices. Raises ConfigurationError."""
    from fallback_tier.budget.listed_prices import listed_cost
    from fallback_tier.budget.prices import Prices, read_price

    try:
        configured_price = None if configuration.price is None else read_price(configuration.price)
    except ValueError as error:
        raise ConfigurationError(
            f"The price {error}.",
            next_step="Give dollars per million tokens, e.g. --price 0.5:2.50.",
        ) from error
    return Prices(configured_price, listed_cost)


def check_prices(configuration: Configuration, models: Iterable[LanguageModel]) -> None:
    """Check that a cap in dollars has every model's price. Raises ConfigurationError naming the model."""
    known_prices = prices(configuration)
    for model in models:
        if configuration.budget.in_dollars and not known_prices.knows(model.model):
            raise ConfigurationError(
                f"There is a cap in dollars, and the price of model {model.model!r} is not known.",
                next_step="Say what it costs with --price IN:OUT (dollars per million tokens), or cap "
                "tokens: --max-tokens, --max-tokens-per-day.",
            )


def check_forms(configuration: Configuration) -> None:
    """Check the answer form: Self-RAG asks for single edits, in JSON alone. Raises ConfigurationError."""
    settings = configuration.settings
    if settings.strategy is Strategy.SELF_RAG and settings.answer_form is not AnswerForm.JSON:
        raise ConfigurationError(
            f"--strategy {settings.strategy.value} writes its plan edit by edit in JSON, and "
            f"--answer-form {settings.answer_form.value} asks for another form.",
            next_step=f"Leave one of the two out, or use --answer-form {AnswerForm.JSON.value}.",
        )


def _model(
    script: Path | None,
    model: str | None,
    base_url: str | None,
    api_key: SecretStr | None,
    role: _Role,
    *,
    holds_to_schema: bool = False,
) -> LanguageModel | None:
    if script is not None:
        from fallback_plugins.messages_api.scripted import load_script

        return load_script(script)
    if model is None:
        if base_url is not None:
            raise ConfigurationError(
                f"{role.url_option} {base_url} is given without a model.",
                next_step=f"Name the model that this server serves with {role.model_option}.",
            )
        return None
    if model.startswith(LOCAL_PREFIX):
        return _local(model.removeprefix(LOCAL_PREFIX), base_url, role, holds_to_schema)
    if base_url is None and api_key is None:
        raise SettingMissingError(
            f"{role.what} {model!r} needs a key, and {role.key_variable} is not set.",
            next_step=f"Set {role.key_variable}, or point {role.url_option} at a Messages API server "
            "of yours.",
        )
    from fallback_plugins.messages_api.model import ClaudeModel

    return ClaudeModel(
        model,
        base_url=base_url,
        api_key=api_key.get_secret_value() if api_key is not None else None,
    )


def _local(file: str, base_url: str | None, role: _Role, holds_to_schema: bool) -> LanguageModel:
    if base_url is not None:
        raise ConfigurationError(
            f"{role.model_option} {LOCAL_PREFIX}{file} serves itself; {role.url_option} names another "
            "server.",
            next_step=f"Give one of the two: {LOCAL_PREFIX}FILE, or a name and an address.",
            kind="model_serves_itself",
        )
    from fallback_plugins.messages_api.local import LocalModel

    return LocalModel(Path(file), holds_to_schema=holds_to_schema)
