"""``python count_tokens.py FILE``, in the peers' environment: tokens of pairs of prompts, as JSON.

By the tokenizer that litellm brings for Claude models; nothing is fetched. Newer models count otherwise:
the ratio is what is reported, the counts are for scale.
"""

import json
import statistics
import sys
from importlib.resources import files
from pathlib import Path


def main() -> None:
    """Median tokens of each of a pair, and the median of their ratio."""
    from tokenizers import Tokenizer  # type: ignore[import-not-found, unused-ignore]

    # Found without importing litellm, which takes seconds.
    place = files("tokenizers").joinpath("..", "litellm/litellm_core_utils/tokenizers")
    tokenizer = Tokenizer.from_file(str(place.joinpath("anthropic_tokenizer.json")))
    counts = [
        [len(tokenizer.encode(text).ids) for text in json.loads(line)]
        for line in Path(sys.argv[1]).read_text().splitlines()
    ]
    first, retry = (statistics.median(each) for each in zip(*counts, strict=True))
    ratio = statistics.median(retry / first for first, retry in counts)
    print(json.dumps({"first": first, "retry": retry, "ratio": ratio}))


if __name__ == "__main__":
    main()
