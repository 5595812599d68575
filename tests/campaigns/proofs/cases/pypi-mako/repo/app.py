"""Is a template that an editor wrote well-formed?"""

from mako.exceptions import MakoException
from mako.lexer import Lexer


def is_template(text):
    try:
        Lexer(text).parse()
    except MakoException:
        return False
    return True
