"""Encryption at rest of checkpoints, replay buffers and action logs: AES-256-GCM.

What is encrypted begins with the name of the environment variable that holds the key, so whatever
reads a file finds its key without being told. The key itself is never written.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import re
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from rlzoo_plus.errors import ConfigError

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
# What encryption adds to the bytes at most.
OVERHEAD_BYTES = 160
_MAGIC = b"rlzoo-encrypted-1 "
_KEY_BYTES, _NONCE_BYTES, _ID_DIGITS = 32, 12, 16
_HEAD = re.compile(re.escape(_MAGIC) + rb"([A-Za-z0-9_]{1,64}) ([0-9a-f]{16})\n")


class EncryptionError(ConfigError):
    """Why something encrypted cannot be read here: a key that is missing, or another one."""


@dataclass(frozen=True)
class Cipher:
    """A key from an environment variable."""

    variable: str  # that holds it
    key_id: str  # tells one key from another, and nothing about it
    _key: bytes = field(repr=False)

    def encrypt(self, data: bytes) -> bytes:
        """Return the data encrypted, with what is needed to find its key.

        The same data gives the same bytes: runs stay comparable, and rows are stored once.
        """
        head = _MAGIC + f"{self.variable} {self.key_id}\n".encode()
        # From all of the data and a key of its own: two data never share a nonce, in practice.
        nonce_key = hmac.digest(self._key, b"rlzoo_plus nonce", "sha256")
        nonce = hmac.digest(nonce_key, head + data, "sha256")[:_NONCE_BYTES]
        sealed: bytes = _aes(self._key).encrypt(nonce, data, head)
        return head + nonce + sealed


def load_cipher(variable: str) -> Cipher:
    """Read the key in an environment variable.

    Args:
        variable: Its name. It holds 32 bytes, as 64 hexadecimal digits or in base64.

    Raises:
        EncryptionError: It is not set, no such key, or the package is missing.
    """
    text = os.environ.get(variable, "").strip()
    make = f"Set it, for example: export {variable}=$(openssl rand -hex 32)"
    if not text:
        raise EncryptionError(f"the environment variable {variable} has no encryption key. {make}")
    if (key := _key_in(text)) is None:
        raise EncryptionError(
            f"the environment variable {variable} holds no key of 32 bytes in hexadecimal digits "
            f"or base64. {make}"
        )
    _aes(key)
    derived = hmac.digest(key, b"rlzoo_plus key id", "sha256")
    return Cipher(variable, derived.hex()[:_ID_DIGITS], key)


def looks_like_key(value: Any) -> bool:
    """Return whether what should be the name of a variable is a key, or a part of one."""
    text = str(value).strip("\"' ")
    return _key_in(text) is not None or re.fullmatch(r"[0-9a-fA-F]{40,}", text) is not None


def _key_in(text: str) -> bytes | None:
    """Return the key that a text is, in hexadecimal digits or in base64; None if it is none."""
    try:
        is_hex = re.fullmatch(r"[0-9a-fA-F]{64}", text) is not None
        key = bytes.fromhex(text) if is_hex else base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return key if len(key) == _KEY_BYTES else None


def cipher_of(variable: str | None) -> Cipher | None:
    """Return the cipher of the key `encryption`; None without one. See `load_cipher`."""
    return None if variable is None else load_cipher(variable)


def encrypted(data: bytes, cipher: Cipher | None) -> bytes:
    """Return the data as it is written: encrypted if there is a cipher."""
    return data if cipher is None else cipher.encrypt(data)


def decrypted(data: bytes) -> bytes:
    """Return what was written, of data that may be encrypted or not.

    Raises:
        EncryptionError: The key is not there, or another one.
        ValueError: The data was changed.
    """
    head = _HEAD.match(data)
    if head is None:
        return data
    cipher = load_cipher(head[1].decode())
    if cipher.key_id != head[2].decode():
        raise EncryptionError(
            f"the key in {cipher.variable} is not the one that this was encrypted with. Set "
            f"{cipher.variable} to the key of the run."
        )
    nonce = data[head.end() : head.end() + _NONCE_BYTES]
    exceptions = import_module("cryptography.exceptions")
    try:
        plain: bytes = _aes(cipher._key).decrypt(
            nonce, data[head.end() + _NONCE_BYTES :], head.group()
        )
    except (exceptions.InvalidTag, ValueError) as error:
        raise ValueError("encrypted data was changed") from error
    return plain


def _aes(key: bytes) -> Any:
    try:
        return import_module("cryptography.hazmat.primitives.ciphers.aead").AESGCM(key)
    except ImportError as error:
        raise EncryptionError(
            f"encryption needs cryptography ({error}): pip install 'rlzoo-plus[encryption]'"
        ) from None
