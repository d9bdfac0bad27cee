"""A federation of visitors: sites that are never there together, and parties that end at any moment."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from fedsvm.algorithms.data.partition import site_partition
from fedsvm.algorithms.data.vertical import VerticalTask, align
from fedsvm.algorithms.dpp_svm.algorithm import DppSvm
from fedsvm.algorithms.dpp_svm.model import DppModel
from fedsvm.algorithms.dpp_svm.settings import DppSettings
from fedsvm.algorithms.optimization import libsvm
from fedsvm.algorithms.site_process import INSTALLATION
from fedsvm.federation.errors import FederationError, NothingDue
from fedsvm.federation.membership import DropoutPolicy
from fedsvm.federation.offline.coordinator import open_offline_federation
from fedsvm.federation.offline.endpoint import Departure, StoredArrival
from fedsvm.federation.offline.offline_site import OfflineSite, agreement_of
from fedsvm.federation.offline.site_store import OVER, SiteStore
from fedsvm.federation.run_journal import Journal
from fedsvm.federation.site.partition import Partition
from fedsvm.federation.site.rules import ANYTHING
from fedsvm.federation.site.signed import OrderSigner
from fedsvm.federation.site.terms import Terms
from fedsvm.federation.transport import wire
from fedsvm.federation.transport.keys import COORDINATOR, KeyPair, Party, Roster
from fedsvm.federation.transport.signing import SigningKey
from fedsvm.federation.transport.wire import Message
from fedsvm.protocols.sums.registry import SUMS
from fedsvm.protocols.sums.secure_sum import SecureSum
from fedsvm.scenarios.oversight import receipts
from fedsvm.scenarios.oversight.receipt_comparison import compare

RUN = b"visits!!"
SIGNING = SigningKey(bytes(32))
SITES = ("clinic", "north", "south")
KEYS = {site: SigningKey(site.encode().ljust(32)) for site in SITES}
VISITS = 9
"""Of each site: two for a sum, one for whatever else all sites do; whoever came last in one begins the next."""
SUM = SUMS["masked"](threshold=0.66)


@dataclass
class Store:
    """The store of a hub in memory: what sites said, in order, and what each is told, by round and place."""

    folder: Path
    said: list[tuple[str, bytes] | Departure] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SITES, 0))
    told: dict[str, dict[tuple[int, int], bytes]] = field(default_factory=lambda: {site: {} for site in SITES})
    visits: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SITES, 0))
    model: DppModel | None = None
    signing: SigningKey = SIGNING
    protocol: SecureSum = SUM

    def secret(self, site: str) -> bytes:
        return site.encode().ljust(32, b"*")

    @property
    def roster(self) -> Roster:
        keys = {site: agreement_of(self.secret(site), RUN).public for site in SITES}
        return Roster([Party(COORDINATOR, "", None), *(Party(s, "", s.encode().ljust(32), keys[s]) for s in SITES)])

    @property
    def terms(self) -> Terms:
        settings = asdict(DppSettings(kernel="linear", C=2.0))
        protocol, options = self.protocol.name, dict(self.protocol.options)
        return Terms("dpp-svm", settings, protocol, options, 2, needs_pairwise_keys=True)

    def advance(self) -> None:
        """Run the coordinator from its start, as far as it comes."""
        with Journal(self.folder / "coordinator.journal") as journal:
            if not journal.header:
                journal.begin({})
            last = journal.last_round

            def arrivals() -> Iterator[StoredArrival | Departure]:
                for each in self.said:
                    if isinstance(each, Departure):
                        yield each
                    elif (message := wire.decode(each[1])).round in (0, *range(last + 1, last + 1000)):
                        yield StoredArrival(each[0], message)

            def store(site: str, number: int, place: int, message: Message) -> None:
                known = self.told[site].setdefault((number, place), message.frame)
                assert known == message.frame

            policy, signer = DropoutPolicy(min_sites=2), OrderSigner(self.signing, RUN, SITES, self.terms)
            try:
                with open_offline_federation(
                    self.roster, RUN, arrivals(), store, self.protocol, policy, journal, signer
                ) as federation:
                    federation.assemble()
                    align(federation, "position")
                    task = VerticalTask("standard", seed=1)
                    self.model = DppSvm().fit(federation, task, DppSettings(kernel="linear", C=2.0))
            except NothingDue:
                pass

    def visit(self, site: str, partition: Partition, most: int | None = None) -> bool:
        """One visit of a site, which ends after it sent `most` messages, as if it were killed."""
        self.visits[site] += 1
        with SiteStore(self.folder / f"{site}.diary", b"k" * 32) as diary:
            if not diary.facts:
                diary.note({"secret": self.secret(site), "run": RUN, "signing_key": SIGNING.public})
            for number in range(self.counts[site], len(diary.sent)):
                self.hear(site, number, diary.sent[number])
            visitor = OfflineSite(
                site,
                site.encode().ljust(32),
                INSTALLATION,
                diary,
                self.terms,
                ANYTHING,
                {},
                str(self.folder / f"{site}.receipt"),
                "1",
                KEYS[site],
            )

            def more() -> Iterator[Message]:
                while len(diary.received) < len(self.told[site]):
                    yield wire.decode(list(self.told[site].values())[len(diary.received)])

            def send(number: int, message: Message) -> None:
                if most is not None and number >= most:
                    raise KeyboardInterrupt
                self.hear(site, number, message)

            return visitor.carry_on(SITES, partition, more, send)

    def hear(self, site: str, number: int, message: Message) -> None:
        assert number == self.counts[site]
        self.counts[site] += 1
        self.said.append((site, message.frame))
        self.advance()


def made() -> tuple[dict[str, Partition], np.ndarray, np.ndarray]:
    """Columns of the same rows at three sites, the labels at the first; all rows, scaled, and their labels."""
    generator = np.random.default_rng(5)
    rows = generator.normal(size=(40, 6))
    labels = np.where(rows[:, 0] + rows[:, 3] + 0.3 * generator.normal(size=40) > 0, 1.0, -1.0)
    parts = {
        site: site_partition(
            rows[:, 2 * place : 2 * place + 2],
            labels if place == 0 else None,
            names=[f"{site}-a", f"{site}-b"],
        )
        for place, site in enumerate(SITES)
    }
    return parts, (rows - rows.mean(axis=0)) / rows.std(axis=0), labels


def assert_pooled(model: DppModel | None, rows: np.ndarray, labels: np.ndarray) -> None:
    """The model is what all columns in one place give."""
    assert model is not None
    exact = libsvm.dual(rows @ rows.T, labels, 2.0)
    found = rows @ (rows[model.support_indices].T @ model.dual_coef) + model.intercept
    assert np.abs(found - exact.decision_function(rows @ rows.T)).max() < 1e-9


@pytest.mark.parametrize("protocol", [SUM, SUMS["additive-shares"](helpers=2)], ids=lambda protocol: protocol.name)
def test_sites_that_never_meet_train_the_pooled_model(protocol: SecureSum, tmp_path: Path) -> None:
    parts, rows, labels = made()
    store = Store(tmp_path, protocol=protocol)
    store.advance()
    over: set[str] = set()
    for _ in range(VISITS):
        over |= {site for site in SITES if store.visit(site, parts[site])}
    assert over == set(SITES)
    assert_pooled(store.model, rows, labels)
    known = {COORDINATOR: SIGNING.public, **{site: key.public for site, key in KEYS.items()}}
    first, *others = (receipts.read(tmp_path / f"{site}.receipt", known) for site in SITES)
    for each in (first, *others):
        assert each.is_whole, each.problems
        assert each.signed.keys() == each.links.keys()
        assert each.outcome == "completed"
    assert not any(compare(first, each).differences for each in others)


def test_visits_that_end_at_any_moment_come_to_the_same(tmp_path: Path) -> None:
    parts, rows, labels = made()
    store, chance = Store(tmp_path), random.Random(3)
    store.advance()
    over: set[str] = set()
    for _ in range(400):
        if len(over) == len(SITES):
            break
        site = chance.choice(SITES)
        try:
            if store.visit(site, parts[site], most=store.counts[site] + chance.randrange(3)):
                over.add(site)
        except KeyboardInterrupt:
            continue
    assert_pooled(store.model, rows, labels)


def test_who_would_say_something_else_than_before_says_nothing(tmp_path: Path) -> None:
    parts, _, _ = made()
    store = Store(tmp_path)
    store.advance()
    for _ in range(5):
        for site in SITES:
            store.visit(site, parts[site])
    heard = store.counts["north"]
    other = {name: array**3 if array.dtype == np.float64 else array for name, array in parts["north"].arrays.items()}
    with pytest.raises(FederationError, match="computed other results than at an earlier visit"):
        store.visit("north", replace(parts["north"], arrays=other))
    assert store.counts["north"] == heard


def test_a_diary_is_read_by_its_key_alone_and_by_one_visit_at_a_time(tmp_path: Path) -> None:
    keys = KeyPair.generate()
    with SiteStore(tmp_path / "a.diary", keys.secret) as diary:
        diary.note({"run": RUN})
        with pytest.raises(FederationError, match="Another visit is running"):
            SiteStore(tmp_path / "a.diary", keys.secret)
    assert RUN not in (tmp_path / "a.diary").read_bytes()
    with pytest.raises(FederationError, match="sealed with another key"):
        SiteStore(tmp_path / "a.diary", bytes(32))
    with (tmp_path / "a.diary").open("ab") as file:
        file.write(b"\x40cut short")
    with SiteStore(tmp_path / "a.diary", keys.secret) as diary:
        assert diary.facts == {"run": RUN}
        diary.close_for_good({OVER: True})
    assert [path.name for path in tmp_path.iterdir()] == ["a.diary"]
    with SiteStore(tmp_path / "a.diary", keys.secret) as diary:
        assert diary.facts == {OVER: True}


def test_sites_refuse_orders_that_their_hub_did_not_sign(tmp_path: Path) -> None:
    parts, _, _ = made()
    store = Store(tmp_path, signing=SigningKey())
    with pytest.raises(FederationError, match=r"must have the coordinator's signature, .* and has another one"):
        for _ in range(3):
            store.advance()
            for site in SITES:
                store.visit(site, parts[site])
