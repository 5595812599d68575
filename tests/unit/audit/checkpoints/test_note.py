"""Signed notes: the vector of Go's sumdb/note, and every way in which a note can be wrong."""

import base64
from collections.abc import Callable

import pytest

from fallback_audit.checkpoints.note import (
    MAX_NOTE_BYTES,
    MAX_SIGNATURES,
    Signer,
    Verifier,
    decode_base64,
    open_note,
    sign_note,
)
from fallback_audit.errors import AuditIntegrityError, AuditStoreError, KeyringError
from fallback_audit.statements import (
    SEGMENT_DOMAIN,
    TOMBSTONE_DOMAIN,
    open_statement,
    sign_statement,
)
from tests.kinds import OfKind

# golang.org/x/mod/sumdb/note, note_test.go and the package's own documentation.
GO_SKEY = "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz"
GO_VKEY = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
GO_TEXT = (
    "If you think cryptography is the answer to your problem,\n"
    "then you don't know what your problem is.\n"
)
GO_SIGNATURE = (
    "— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6K"
    "E6RyyBwJnAM=\n"
)
GO_NOTE = f"{GO_TEXT}\n{GO_SIGNATURE}".encode()

PETER = Signer.parse(GO_SKEY)
ANNA = Signer("anna", b"\x01" * 32)
OTHER_PETER = Signer("PeterNeumann", b"\x02" * 32)


def test_go_signs_the_same() -> None:
    assert PETER.skey == GO_SKEY
    assert PETER.verifier.vkey == GO_VKEY
    assert sign_note(GO_TEXT, [PETER]) == GO_NOTE


def test_what_go_signed_is_opened() -> None:
    opened = open_note(GO_NOTE, [Verifier.parse(GO_VKEY)])
    assert opened.text == GO_TEXT
    assert [key.name for key in opened.signed_by] == ["PeterNeumann"]


def test_a_private_key_is_in_no_repr() -> None:
    assert "seed" not in repr(PETER)
    assert GO_SKEY[-20:] not in repr(PETER)


def test_two_sign_and_either_is_enough() -> None:
    note = sign_note("text\n", [PETER, ANNA])
    assert open_note(note, [ANNA.verifier]).signed_by == (ANNA.verifier,)
    both = open_note(note, [ANNA.verifier, PETER.verifier]).signed_by
    assert both == (PETER.verifier, ANNA.verifier)


def test_signatures_of_strangers_are_ignored_but_not_enough() -> None:
    note = sign_note("text\n", [OTHER_PETER, ANNA])
    assert open_note(note, [ANNA.verifier, PETER.verifier]).signed_by == (ANNA.verifier,)
    with pytest.raises(AuditIntegrityError, check=OfKind("no_trusted_key")):
        open_note(note, [PETER.verifier])


def test_a_wrong_signature_beside_a_right_one_is_refused() -> None:
    good = sign_note("text\n", [ANNA])
    bad = sign_note("other\n", [PETER]).partition(b"\n\n")[2]
    with pytest.raises(AuditIntegrityError, check=OfKind("signature_altered")):
        open_note(good + bad, [ANNA.verifier, PETER.verifier])


def test_no_bit_of_a_note_can_flip() -> None:
    for place in range(len(GO_NOTE) * 8):
        altered = bytearray(GO_NOTE)
        altered[place // 8] ^= 1 << place % 8
        with pytest.raises(AuditIntegrityError):
            open_note(bytes(altered), [PETER.verifier])


@pytest.mark.parametrize(
    ("note", "kind"),
    [
        (b"", "not_a_note"),
        (GO_TEXT.encode(), "not_a_note"),
        (GO_NOTE[:-1], "not_a_note"),
        (GO_NOTE.replace(b"your", b"yo\rr"), "not_a_note"),
        (GO_NOTE.replace("—".encode(), b"-"), "bad_signature_line"),
        (GO_NOTE.replace(b"PeterNeumann x", b"Peter+Neumann x"), "bad_signature_line"),
        (GO_NOTE.replace(b"x08go/", b"!"), "bad_signature_line"),
        (GO_NOTE.replace(b"your", b"\xff\xfe"), "not_utf8"),
        (GO_NOTE + b"\n", "not_a_note"),
        (GO_NOTE + GO_SIGNATURE.encode() * MAX_SIGNATURES, "too_many_signatures"),
        (b"a" * MAX_NOTE_BYTES + GO_NOTE, "too_large"),
    ],
)
def test_malformed_notes(note: bytes, kind: str) -> None:
    with pytest.raises(AuditIntegrityError, check=OfKind(kind)):
        open_note(note, [PETER.verifier])


@pytest.mark.parametrize("text", ["no line feed", "a\ttab\n", "\x00\n"])
def test_what_no_note_can_say(text: str) -> None:
    with pytest.raises(AuditStoreError, check=OfKind("not_signable")):
        sign_note(text, [ANNA])


def test_a_note_has_a_signer() -> None:
    with pytest.raises(AuditStoreError, check=OfKind("not_signable")):
        sign_note("text\n", [])


def encoded(key: bytes) -> str:
    return base64.b64encode(key).decode()


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (Verifier.parse, ""),
        (Verifier.parse, GO_SKEY),
        (Verifier.parse, GO_VKEY.replace("c74f20a3", "c74f20a4")),
        (Verifier.parse, GO_VKEY.replace("c74f20a3", "C74F20A3")),
        (Verifier.parse, GO_VKEY.replace("Peter", "Pet r")),
        (Verifier.parse, GO_VKEY.replace("Peter", "Pet\u00a0r")),
        (Verifier.parse, GO_VKEY[:-4]),
        (Verifier.parse, "a+00000000+" + encoded(b"\x04" + bytes(32))),
        (Verifier.parse, "+00000000+AA=="),
        (Signer.parse, GO_VKEY),
        (Signer.parse, GO_SKEY.replace("c74f20a3", "c74f20a4")),
        (Signer.parse, GO_SKEY[:-1]),
        (Signer.parse, "PRIVATE+KEY+"),
    ],
)
def test_malformed_keys(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(KeyringError) as caught:
        parse(text)
    assert GO_SKEY[-30:-1] not in str(caught.value)


@pytest.mark.parametrize("name", ["", "two words", "a+b", "line\nfeed", "\u2028"])
def test_names_that_no_note_can_carry(name: str) -> None:
    with pytest.raises(KeyringError, check=OfKind("bad_name")):
        Signer.generate(name)


def test_keys_are_different() -> None:
    assert Signer.generate("a") != Signer.generate("a")


@pytest.mark.parametrize("text", ["QR==", "QQ=", "QQ", "QQ==\n", " QQ==", "QUF=", "Q-==", "é==="])
def test_base64_has_one_spelling(text: str) -> None:
    assert decode_base64("QQ==") == b"A"
    with pytest.raises(ValueError):
        decode_base64(text)


def test_a_statement_comes_back() -> None:
    content = {"seq": 3, "by": "Zoë", "fields": ["a\nb", "\u0007"], "residue": {"kind": "X"}}
    data = sign_statement(TOMBSTONE_DOMAIN, content, [ANNA])
    assert open_statement(TOMBSTONE_DOMAIN, data, [ANNA.verifier]) == content


def test_a_statement_of_another_kind_is_refused() -> None:
    data = sign_statement(TOMBSTONE_DOMAIN, {"seq": 3}, [ANNA])
    with pytest.raises(AuditIntegrityError, check=OfKind("another_domain")):
        open_statement(SEGMENT_DOMAIN, data, [ANNA.verifier])


@pytest.mark.parametrize("body", ['{"b":1,"a":2}', "[1]", "{", '{"a": 1}', '{"a":1}\n{"a":1}'])
def test_a_statement_is_one_canonical_object(body: str) -> None:
    data = sign_note(f"{TOMBSTONE_DOMAIN}\n{body}\n", [ANNA])
    with pytest.raises(AuditIntegrityError, check=OfKind("not_canonical")):
        open_statement(TOMBSTONE_DOMAIN, data, [ANNA.verifier])


def test_a_statement_by_nobody_trusted_is_refused() -> None:
    data = sign_statement(TOMBSTONE_DOMAIN, {"seq": 3}, [ANNA])
    with pytest.raises(AuditIntegrityError, check=OfKind("no_trusted_key")):
        open_statement(TOMBSTONE_DOMAIN, data, [PETER.verifier])
