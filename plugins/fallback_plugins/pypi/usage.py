"""Does a Python source file use a distribution? Its import name may differ from its own."""

import re
from functools import lru_cache

from packaging.utils import canonicalize_name

#: Import names that aren't the distribution's with "_" for "-": the common ones; others are missed.
IMPORT_NAMES = {
    "attrs": ("attr", "attrs"),
    "beautifulsoup4": ("bs4",),
    "django-allauth": ("allauth",),
    "djangorestframework": ("rest_framework",),
    "gitpython": ("git",),
    "msgpack-python": ("msgpack",),
    "mysql-connector-python": ("mysql",),
    "opencv-python": ("cv2",),
    "pillow": ("PIL",),
    "protobuf": ("google.protobuf",),
    "psycopg2-binary": ("psycopg2",),
    "pycryptodome": ("Crypto",),
    "pycryptodomex": ("Cryptodome",),
    "pyjwt": ("jwt",),
    "pyopenssl": ("OpenSSL",),
    "pysaml2": ("saml2",),
    "python-dateutil": ("dateutil",),
    "python-dotenv": ("dotenv",),
    "python-jose": ("jose",),
    "python-ldap": ("ldap",),
    "python-multipart": ("multipart", "python_multipart"),
    "pyyaml": ("yaml",),
    "scikit-learn": ("sklearn",),
    "setuptools": ("setuptools", "pkg_resources"),
}

_SOURCES = (".py", ".pyi", ".pyx")


def mentions(package: str, path: str, text: str) -> bool:
    """Does this Python file import the distribution's package?"""
    if not path.endswith(_SOURCES):
        return False
    # Most files don't have the word at all, and a plain search is a hundred times as fast.
    folded = text.lower()
    named = any(name.lower() in folded for name in import_names(package))
    return named and bool(_import_of(package).search(text))


@lru_cache(maxsize=64)
def import_names(package: str) -> tuple[str, ...]:
    """What a program imports to use the distribution, as far as it can be told from the name."""
    name = canonicalize_name(package)
    return IMPORT_NAMES.get(name, (name.replace("-", "_"),))


@lru_cache(maxsize=64)
def _import_of(package: str) -> re.Pattern[str]:
    names = "|".join(re.escape(name) for name in import_names(package))
    module = rf"(?:{names})(?![A-Za-z0-9_])"
    # Distribution names fold case, import names don't; PyPI's Django is imported as django.
    return re.compile(
        rf"^[ \t]*(?:from[ \t]+{module}|import[ \t]+(?:[^#\n]*,[ \t]*)?{module})",
        re.MULTILINE | re.IGNORECASE,
    )
