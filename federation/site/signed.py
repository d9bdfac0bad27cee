"""Signed orders: a coordinator cannot deny the orders that its signature covers in a site's receipt.

The coordinator signs the run and each round's link in the chain of orders. The link is a digest of the facts of this
order and of all orders of complete rounds before it, so one valid signature covers all of these.

A site therefore does not verify each signature. It verifies the first one after it joined, that of each order that
matters by itself (a value in the clear, a release), that of an order whose round another order does not build on, the
last one of the run, and one in MAX_UNVERIFIED of all others. It continues only if these are valid. In between, the
connection to the coordinator, encrypted for its pinned key, identifies the sender of an order; without encryption, and
if a hub stores the orders, a site verifies each signature.

A coordinator that follows the protocol never signs two different orders of one round in one run. A lying coordinator
gains one thing by the signatures that are not verified: it can give up to MAX_UNVERIFIED - 1 orders in a row that it
may deny later, if the run then ends. After an invalid signature, the site refuses all later orders of the run, and
names the order at the end of its receipt. Such orders pass all other checks, and unequal ones still open no sum. A site
that verifies each signature carries out no such order, so it refuses only that one.
"""

from __future__ import annotations

from dataclasses import replace

from fedsvm.federation.control import Order
from fedsvm.federation.errors import OrderRefused
from fedsvm.federation.site.chain import ChainRound, OrderChain
from fedsvm.federation.site.terms import Terms
from fedsvm.federation.transport.signing import ORDER, SigningKey, is_signed

MAX_UNVERIFIED = 32
"""Number of orders in a row in which a site verifies at least one signature."""


class OrderSigner:
    """The coordinator's signatures of its orders, with the chain that they are bound to.

    Parameters
    ----------
    key : SigningKey
        The coordinator's key pair.
    run : bytes
        The run's 8 random bytes.
    sites : tuple of str
        All sites of the run, in ring order.
    terms : Terms
        The agreed terms.
    """

    def __init__(self, key: SigningKey, run: bytes, sites: tuple[str, ...], terms: Terms) -> None:
        self._key = key
        self._run = run
        self._chain = OrderChain(run, sites, terms)

    def sign_order(self, order: Order, number: int) -> Order:
        """Return the order of a round with its signature."""
        link = self._chain.begin(order, number).digest
        return replace(order, signature=self._key.sign(ORDER, order_content(self._run, link)))

    def add_complete(self, number: int, order: Order) -> None:
        """Add a complete round to the chain."""
        self._chain.miss([(number, order)])


class SignatureCheck:
    """A site's check of the coordinator's signatures.

    Parameters
    ----------
    public : bytes or None
        The coordinator's key; None if it is unknown, and nothing is checked.
    run : bytes
        The run's 8 random bytes.
    each : bool
        Whether to verify each signature at once.
    """

    def __init__(self, public: bytes | None, run: bytes, *, each: bool) -> None:
        self._public = public
        self._run = run
        self._most = 0 if each else MAX_UNVERIFIED - 1
        self._left = 0
        self._unverified: tuple[bytes, ChainRound] | None = None
        self._failure = ""

    def take(self, order: Order, link: ChainRound, *, at_once: bool) -> None:
        """Take the next order.

        Parameters
        ----------
        order : Order
        link : ChainRound
            Its link in the chain of this site.
        at_once : bool
            Whether its signature must be verified before it is carried out.

        Raises
        ------
        OrderRefused
            Its signature, or that of an order before it, is due and is not valid, or one was not valid before.
        """
        self._refuse_after_failure()
        if self._unverified is not None and order.after != self._unverified[1].round:
            self.settle()  # its round was aborted, so no later signature covers it
        if at_once or not self._left:
            self.require(order, link)
            self._left = self._most
            self._unverified = None
        else:
            self._left -= 1
            self._unverified = order.signature, link

    def require_next(self) -> None:
        """Require a valid signature of the next order."""
        self._left = 0

    def settle(self) -> None:
        """Verify the signature of the last order, if it was not. Raises OrderRefused, also if one failed before."""
        self._refuse_after_failure()
        if self._unverified is not None:
            signature, link = self._unverified
            self._verify(signature, link, f"the order of round {link.round}")
            self._unverified = None

    def require(self, order: Order, link: ChainRound) -> None:
        """Verify the signature of an order. Raises OrderRefused."""
        self._refuse_after_failure()
        self._verify(order.signature, link, "it")

    def _refuse_after_failure(self) -> None:
        if self._failure:
            raise OrderRefused(self._failure)

    def _verify(self, signature: bytes, link: ChainRound, subject: str) -> None:
        if self._public is None:
            return
        if not is_signed(self._public, signature, ORDER, order_content(self._run, link.digest)):
            said = (
                "must have the coordinator's signature, bound to the run and to all orders before it, and has "
                f"{'another one' if signature else 'none'}"
            )
            if self._most:  # otherwise each is verified, and none that is not valid was carried out
                self._failure = f"the order of round {link.round} {said}"
            raise OrderRefused(f"{subject} {said}")


def order_content(run: bytes, link: bytes) -> bytes:
    """Return the content that a coordinator signs: the run, and the link of a round in the chain of orders."""
    return run + link
