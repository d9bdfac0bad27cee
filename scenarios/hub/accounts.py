"""The users of a hub, who sign in by a mailed link."""

from __future__ import annotations

import re
import secrets
import time

import sqlalchemy as sql
from sqlalchemy.orm import Session

from fedsvm.scenarios.hub.database import Database, SignIn, Visitor, digest, token
from fedsvm.scenarios.hub.mails import Outbox

SIGN_IN_S, SIGNED_IN_S = 15 * 60.0, 14 * 24 * 3600.0
_SIGN_INS_AN_HOUR, _ALL_SIGN_INS_AN_HOUR = 5, 500
"""Links mailed to one address, and to all."""
_ADDRESS = re.compile(r"[a-z0-9_+&'~-]+(\.[a-z0-9_+&'~-]+)*@[a-z0-9-]+(\.[a-z0-9-]+)*")
"""No more than mail servers take: what seems encoded (`=?…?=`) would be decoded in a header, line ends and all."""
_MAX_ADDRESS, _MAX_LOCAL_PART = 254, 64


class RequestRefused(Exception):
    """The refusal of a request. The sentence says why, and what to do."""


class UserAccounts:
    """The users of a hub.

    Parameters
    ----------
    database : Database
    outbox : Outbox
    url : str
        By which people reach the hub, without a slash at its end.
    """

    def __init__(self, database: Database, outbox: Outbox, url: str) -> None:
        self._database = database
        self._outbox = outbox
        self._url = url

    def send_sign_in(self, email: str) -> None:
        """Mail a sign-in link. Raises Refused if an address is invalid, or too many links were mailed."""
        email = address(email)
        with self._database.session() as session:
            _require_few_sign_ins(session, email)
            path = _made_sign_in(session, email)
            text = (
                f"Sign in to the task service with this link within 15 minutes:\n\n{self._url}{path}\n\n"
                "It works once. If you did not request it, ignore this mail.\n"
            )
            self._outbox.put(session, f"sign-in {digest(path).hex()}", email, "Sign in to the task service", text)

    def sign_in_path(self, email: str) -> str:
        """Return a path to sign in, for the operator of the hub."""
        with self._database.session() as session:
            return _made_sign_in(session, email)

    def sign_in(self, said: str) -> str:
        """Return the cookie of a user who followed the link of a mail. Raises Refused."""
        now = time.time()
        with self._database.session() as session:
            found = session.scalar(sql.select(SignIn).filter_by(token=digest(said)))
            if found is None or found.used_at is not None or now - found.made_at > SIGN_IN_S:
                raise RequestRefused(
                    "This link was used or is older than 15 minutes; request a new one on the home page."
                )
            found.used_at = now
            cookie = token()
            form_key = secrets.token_bytes(32)
            session.add(Visitor(email=found.email, token=digest(cookie), form_key=form_key, until=now + SIGNED_IN_S))
            return cookie

    def sign_out(self, cookie: str) -> None:
        """Forget a cookie."""
        with self._database.session() as session:
            session.execute(sql.delete(Visitor).filter_by(token=digest(cookie)))

    def visitor(self, cookie: str) -> Visitor | None:
        """Return the user who is signed in by a cookie."""
        with self._database.reading() as session:
            found = session.scalar(sql.select(Visitor).filter_by(token=digest(cookie)))
            return found if found is not None and found.until > time.time() else None


def _made_sign_in(session: Session, email: str) -> str:
    said = token()
    session.add(SignIn(email=email, token=digest(said), made_at=time.time()))
    return f"/sign-in/{said}"


def _require_few_sign_ins(session: Session, email: str) -> None:
    """Raise Refused if one address, or all together, reached the maximum of sign-in links within an hour."""
    recent = sql.select(sql.func.count()).select_from(SignIn).where(SignIn.made_at > time.time() - 3600)
    if (session.scalar(recent.filter_by(email=email)) or 0) >= _SIGN_INS_AN_HOUR:
        raise RequestRefused(
            f"{_SIGN_INS_AN_HOUR} links were mailed to {email} within an hour; use the latest, or try again later."
        )
    if (session.scalar(recent) or 0) >= _ALL_SIGN_INS_AN_HOUR:
        raise RequestRefused("Too many sign-in links were requested from this hub; try again in an hour.")


def address(said: str) -> str:
    """Return an address in its stored form. Raises Refused if it is not an address."""
    found = said.strip().lower()
    is_short = len(found) <= _MAX_ADDRESS and len(found.partition("@")[0]) <= _MAX_LOCAL_PART
    if not is_short or not _ADDRESS.fullmatch(found):
        raise RequestRefused(f"E-mail address: must be one such as anna@example.org, got {found[:80]!r}.")
    return found
