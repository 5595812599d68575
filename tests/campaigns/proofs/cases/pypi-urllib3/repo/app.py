"""Reads a page as a user who is logged in."""

import urllib3


def page(url, session):
    pool = urllib3.PoolManager(retries=3)
    return pool.request("GET", url, headers={"Cookie": f"session={session}"}).data.decode()
