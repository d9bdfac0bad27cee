"""Files of keys in the format of ZeroMQ's certificates (`zmq.auth`), and the folder of the keys that are admitted.

A file has a pair for sockets (CURVE) and a pair for signatures (Ed25519).

NAME.key has the public keys and may be published; NAME.key_secret also has the secret keys and only its owner may read
it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fedsvm.federation.errors import FederationError
from fedsvm.federation.transport import z85
from fedsvm.federation.transport.keys import KEY_BYTES, KeyPair
from fedsvm.federation.transport.signing import SigningKey

PUBLIC, SECRET = ".key", ".key_secret"
_SIGNING_PUBLIC, _SIGNING_SECRET = "signing-key", "signing-secret"
_BANNERS = {
    PUBLIC: "#   ZeroMQ CURVE Public Certificate, for everybody who is to know this party by it.\n",
    SECRET: "#   ZeroMQ CURVE **Secret** Certificate: show it to nobody, and leave its permissions as they are.\n",
}


@dataclass(frozen=True)
class KeyCertificate:
    """A party's own keys, and the name that they were made for.

    Parameters
    ----------
    name : str
    keys : KeyPair
        The key pair for sockets.
    signing : SigningKey, optional
        The key pair for signatures; None in a file of an earlier version.
    """

    name: str
    keys: KeyPair
    signing: SigningKey | None = None


def create(folder: Path, name: str) -> tuple[Path, Path]:
    """Make a key pair, and write NAME.key and NAME.key_secret, which only its owner may read.

    Raises FederationError if one of the files exists.
    """
    keys, signing = KeyPair.generate(), SigningKey()
    halves = {
        PUBLIC: ({"public-key": keys.public}, {_SIGNING_PUBLIC: signing.public}),
        SECRET: (
            {"public-key": keys.public, "secret-key": keys.secret},
            {_SIGNING_PUBLIC: signing.public, _SIGNING_SECRET: signing.seed},
        ),
    }
    files = {PUBLIC: folder / f"{name}{PUBLIC}", SECRET: folder / f"{name}{SECRET}"}
    for path in files.values():
        if path.exists():
            raise FederationError(
                f"{path} exists already; name another folder or party. To replace a lost key, replace it at the "
                "coordinator too."
            )
    _write_new(files[SECRET], _text(SECRET, name, *halves[SECRET]), 0o600)
    _write_new(files[PUBLIC], _text(PUBLIC, name, *halves[PUBLIC]), 0o644)
    return files[PUBLIC], files[SECRET]


def read_secret(path: Path) -> KeyCertificate:
    """Return a party's own certificate. Raises FederationError for another file, or one that others may read."""
    values = _read(path)
    if "secret-key" not in values:
        raise FederationError(f"{path} has no secret key; name the file that ends in {SECRET}.")
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise FederationError(f"{path} must be readable by its owner only; run chmod 600 {path}.")
    keys = KeyPair(_key(path, values, "public-key"), _key(path, values, "secret-key"))
    signing = SigningKey(_key(path, values, _SIGNING_SECRET)) if _SIGNING_SECRET in values else None
    return KeyCertificate(values.get("name", path.name.removesuffix(SECRET)), keys, signing)


def read_public(path: Path) -> bytes:
    """Return the 32 bytes of a public key. Raises FederationError for a file without one, or with a secret key."""
    values = _read(path)
    if "secret-key" in values:
        raise FederationError(
            f"{path} has a secret key, which only its owner may have: remove the file, ask its owner to make new keys "
            f"(fedsvm keys new), and to send the file that ends in {PUBLIC}."
        )
    return _key(path, values, "public-key")


def read_signing(path: Path) -> bytes | None:
    """Return the 32 bytes of a public key for signatures; None in a file of an earlier version."""
    values = _read(path)
    return _key(path, values, _SIGNING_PUBLIC) if _SIGNING_PUBLIC in values else None


def read_pinned(folder: Path) -> dict[str, bytes]:
    """Return the public keys for signatures in a folder, by file name, sorted.

    Raises FederationError like `read_admitted`, for a file without such a key, and for two names of one key.
    """
    keys: dict[str, bytes] = {}
    for name in read_admitted(folder):
        path = folder / f"{name}{PUBLIC}"
        if (key := read_signing(path)) is None:
            raise FederationError(f"{path} has no {_SIGNING_PUBLIC}; ask {name} to make new keys (fedsvm keys new).")
        if same := [known for known, other in keys.items() if other == key]:
            raise FederationError(
                f"{same[0]} and {name} have the same {_SIGNING_PUBLIC} in {folder}; each site needs its own."
            )
        keys[name] = key
    return keys


def read_admitted(folder: Path) -> dict[str, bytes]:
    """Return the public keys in a folder, by file name, sorted.

    Raises FederationError for a folder without any, for one that holds a secret key, and for two names of one key.
    """
    if not folder.is_dir():
        raise FederationError(f"There is no folder {folder}; create it, with the public key of every site.")
    if secret := sorted(folder.glob(f"*{SECRET}")):
        raise FederationError(
            f"{secret[0]} is a secret key, which only its owner may have: remove it, and ask the site for new keys."
        )
    keys: dict[str, bytes] = {}
    for path in sorted(folder.glob(f"*{PUBLIC}")):
        name, key = path.name.removesuffix(PUBLIC), read_public(path)
        if same := [known for known, other in keys.items() if other == key]:
            raise FederationError(
                f"{same[0]} and {name} have the same key in {folder}; each site needs its own (fedsvm keys new)."
            )
        keys[name] = key
    if not keys:
        raise FederationError(f"{folder} has no public key; put the {PUBLIC} file of every site there.")
    return keys


def _text(kind: str, name: str, curve: Mapping[str, bytes], ed25519: Mapping[str, bytes]) -> str:
    sections = f"curve\n{_lines(curve)}ed25519\n{_lines(ed25519)}"
    return f"{_BANNERS[kind]}\nmetadata\n    name = {name}\n{sections}"


def _lines(keys: Mapping[str, bytes]) -> str:
    return "".join(f'    {half} = "{z85.encode(key).decode()}"\n' for half, key in keys.items())


def _write_new(path: Path, text: str, mode: int) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except OSError as error:
        raise FederationError(f"{path} cannot be written: {error.strerror}.") from error
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def _read(path: Path) -> dict[str, str]:
    """Return the values of a certificate by name."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise FederationError(f"The key {path} cannot be read: {why}.") from error
    pairs = (line.partition("=") for line in map(str.strip, lines) if not line.startswith("#"))
    return {name.strip(): value.strip().strip("\"'") for name, equals, value in pairs if equals}


def _key(path: Path, values: dict[str, str], half: str) -> bytes:
    """Return one half of a key pair. Raises FederationError for text that is not a key."""
    try:
        key = z85.decode(values.get(half, ""))
    except (ValueError, KeyError):
        key = b""
    if len(key) != KEY_BYTES:
        raise FederationError(f"{path} is not a ZeroMQ certificate: it has no {half} of 40 letters in Z85.")
    return key
