"""Fetches a page."""

import requests


def fetch(url):
    """The text of a page."""
    answer = requests.get(url, timeout=10)
    answer.raise_for_status()
    return answer.text
