"""Whom we trust."""

import ssl

import certifi


def authorities():
    context = ssl.create_default_context(cafile=certifi.where())
    return {
        value
        for found in context.get_ca_certs()
        for part in found["subject"]
        for key, value in part
        if key == "commonName"
    }
