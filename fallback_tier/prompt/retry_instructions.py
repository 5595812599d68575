"""What a model is told to do about the failure of its last attempt, by the kind of failure.

A patch that broke something and a patch that does too little call for opposite next steps.
"""

from fallback_audit.vocabulary import FailureKind

_UNDONE = "That change was undone: the files are as the snippets show them."
_NOT_MADE = "No patch came of that answer: the files are as the snippets show them."
_BROKE = (
    "Find what in that change caused this failure, and plan one that closes the flaw without it."
)
_TOO_LITTLE = (
    "The flaw is still there: that change does too little, or it is not where the flaw is. Plan the whole "
    "fix: what of that change is right, and what was missing."
)
_CORRECTED = "Plan the fix, with what was wrong corrected."

_BY_KIND = {
    FailureKind.PROOF_FAILED: _TOO_LITTLE,
    FailureKind.STILL_VULNERABLE: _TOO_LITTLE,
    FailureKind.PLAN_INVALID: _CORRECTED,
    FailureKind.PATCH_DOES_NOT_APPLY: _CORRECTED,
    FailureKind.REPEATED_PATCH: (
        "Those edits were tried before and failed. Plan a fix that works in another way."
    ),
    FailureKind.UNDECLARED_CAPABILITY: (
        "Plan a fix that does not reach for what is named there, or declare it as it is said there."
    ),
}


_NO_PATCH = {
    FailureKind.PLAN_INVALID,
    FailureKind.PATCH_DOES_NOT_APPLY,
    FailureKind.REPEATED_PATCH,
}


def retry_advice(kind: FailureKind) -> str:
    """The next step after a failure of this kind, in a few sentences of ours alone."""
    begin = _NOT_MADE if kind in _NO_PATCH else _UNDONE
    return f"{begin} {_BY_KIND.get(kind, _BROKE)}"
