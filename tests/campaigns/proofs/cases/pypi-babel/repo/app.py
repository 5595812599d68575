"""How a visitor's language is called; the visitor says which one it is."""

from babel.localedata import exists, load


def language_name(language):
    if not exists(language):
        return "unknown"
    return load(language)["languages"].get(language, "unknown")
