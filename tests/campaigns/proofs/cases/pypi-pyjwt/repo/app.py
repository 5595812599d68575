"""Tokens that name a user."""

import jwt


def token(user, key):
    return jwt.encode({"user": user}, key, algorithm="HS256").decode()


def user(token, key):
    return jwt.decode(token, key)["user"]
