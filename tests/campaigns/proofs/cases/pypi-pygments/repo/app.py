"""Sources of a paste service, coloured."""

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name


def coloured(source, language):
    return highlight(source, get_lexer_by_name(language), HtmlFormatter(nowrap=True))
