"""What a prompt says of an advisory, of snippets and of an example; and what it must say."""

from collections.abc import Callable, Sequence

from fallback_tier.advisory import Advisory, fixed_versions
from fallback_tier.answers.block_form import SEARCH, write_edit
from fallback_tier.errors import ConfigurationError
from fallback_tier.limits import MAX_EXAMPLE_BYTES, MAX_FENCE_PREFIX_BYTES
from fallback_tier.outcome import SearchReplace
from fallback_tier.prompt.context import Snippet
from fallback_tier.prompt.fence import SourceKind
from fallback_tier.repo import AnswerForm
from fallback_tier.retrieval import FewShot, edit_line, example_text

#: Fixed versions listed per package, lowest first: release lines beyond these are seldom alive.
MAX_FIXED_VERSIONS = 20


def advisory_text(advisory: Advisory, ecosystem: str) -> str:
    """An advisory as a model is told of it: what is structured first, then its text."""
    lines = [f"id: {', '.join((advisory.id, *advisory.aliases))}"]
    for package in advisory.packages(ecosystem):
        fixed = fixed_versions(advisory, ecosystem, package)[:MAX_FIXED_VERSIONS]
        lines.append(f"package: {package}; fixed in: {', '.join(fixed) or 'no version named'}")
    if advisory.cwe:
        lines.append(f"weakness: {', '.join(advisory.cwe)}")
    return "\n".join((*lines, "", advisory.text))


def snippets_shown(
    snippets: Sequence[Snippet], fenced: Callable[[str, SourceKind], str]
) -> list[dict[str, str]]:
    """What a template is given of snippets: each one's id, and its text in a fence."""
    kind = SourceKind.REPOSITORY_SNIPPET
    return [{"id": one.id, "text": fenced(one.shown, kind)} for one in snippets]


def example_shown(shot: FewShot, form: AnswerForm) -> str:
    """An example, its edits in the form in which an answer is wanted: in JSON also where blocks, of which
    each line has a prefix in the fence, would be cut by it."""
    if form is AnswerForm.BLOCKS:
        text = example_text(shot.example, shot.text, shot.edits, _block)
        lines = text.count("\n") + 1
        if len(text.encode()) + lines * MAX_FENCE_PREFIX_BYTES <= MAX_EXAMPLE_BYTES:
            return text
    return example_text(shot.example, shot.text, shot.edits, edit_line)


def _block(edit: SearchReplace) -> str:
    try:
        return write_edit(edit)
    except ValueError:
        return edit_line(edit)  # code that holds a marker: still an example, if of another form


def check_contains(system: str, form: AnswerForm, *, next_step: str) -> None:
    """A template that knows of JSON alone would have every answer rejected: ConfigurationError."""
    if form is AnswerForm.BLOCKS and SEARCH not in system:
        raise ConfigurationError(
            f"The prompt template does not say how to answer in {form.value}: it has no `{SEARCH}`.",
            next_step=f"{next_step} Or use --answer-form {AnswerForm.JSON.value}.",
            kind="not_shown",
        )
