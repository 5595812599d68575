"""Does a value fit a check that a plugin declares?"""

from validate import ValidateError, Validator


def fits(check, value):
    try:
        Validator().check(check, value)
    except ValidateError:
        return False
    return True
