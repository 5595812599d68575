"""Asks through the company's proxy."""

import requests

PROXY = "http://clerk:secret@proxy.invalid:3128"


def session():
    made = requests.Session()
    made.trust_env = False
    made.proxies = {"http": PROXY, "https": PROXY}
    return made


def text(through, url):
    answer = through.get(url)
    answer.raise_for_status()
    return answer.text
