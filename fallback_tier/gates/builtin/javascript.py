"""JavaScript as node's own parser reads it, beside ours (``patch.parsers_agree``)."""

import json
from collections import Counter
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import TemporaryDirectory

from fallback_tier.errors import ToolMissingError
from fallback_tier.execution import CommandResult
from fallback_tier.gate_ports import GateContext
from fallback_tier.gates.trees.isolation import git_failed, in_short
from fallback_tier.patch.parsers_agree import javascript_disagreement

#: Parsing takes milliseconds; node takes its time to start on a busy machine.
_TIMEOUT_S = 60.0

_PARSING = "node, asked to parse what the patch changes,"

#: node ships a parser (acorn) for itself alone: what its own library can load, this lets a script load.
_OWN_LIBRARY = "--expose-internals"

#: How the probe ends on a node without that parser.
_NO_PARSER = 42


def disagreement_with_node(context: GateContext, before: str, after: str) -> str | None:
    """What node's parser and ours see differently with the patch alone, as a clause; None: nothing.

    None as well where there is no node, or one without that parser: then nothing of the patch runs on it
    here either. Nothing of the texts is run. Raises ToolFailedError where node does not come to its end.
    """
    with TemporaryDirectory() as folder, as_file(files(__package__) / "names_of.js") as probe:
        places = []
        for name, text in (("before", before), ("after", after)):
            place = Path(folder) / name
            place.write_bytes(text.encode("utf-8", "replace"))
            places.append(str(place))
        try:
            asked = [_OWN_LIBRARY, str(probe), *places]
            reported = context.clients.run("node", asked, cwd=Path(folder), timeout_s=_TIMEOUT_S)
        except ToolMissingError:
            return None
    if reported.exit_code == _NO_PARSER:
        return None
    if not reported.ok:
        raise git_failed(_PARSING, _why(reported), kind="node_failed")
    try:
        was, now = (
            {way: Counter(dict(found)) for way, found in json.loads(line).items()}
            for line in reported.output.split("\n")
            if line.startswith("{")  # node's own warnings stand in the same output
        )
    except ValueError as error:
        raise git_failed(
            _PARSING, in_short(reported.output), kind="node_answer_malformed"
        ) from error
    return javascript_disagreement(before, after, was, now)


def _why(reported: CommandResult) -> str:
    ended = (
        f"it did not end within {_TIMEOUT_S:.0f} s"
        if reported.timed_out
        else in_short(reported.output)
    )
    return ended or f"it ended with {reported.exit_code}"
