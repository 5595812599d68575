"""The pattern that finds keywords of a comparative sentence must not backtrack for seconds."""

import time

from nltk.corpus.reader.comparative_sents import KEYWORD


def test_keyword_pattern_takes_linear_time() -> None:
    started = time.process_time()
    KEYWORD.findall("( " + "(" * 300_000)
    spent = time.process_time() - started
    assert spent < 2, f"300,000 parentheses kept the pattern busy for {spent:.1f} seconds"
