"""Signed orders and receipts: lies of a coordinator with keys, over real processes, and receipts that sites forge."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fedsvm.federation.control import Order, SumTerms
from fedsvm.federation.errors import OrderRefused, SiteFailed
from fedsvm.federation.federation import Federation
from fedsvm.federation.hosts import certificates
from fedsvm.federation.site import receipt as lines_of
from fedsvm.federation.site import signed
from fedsvm.federation.site.chain import OrderChain
from fedsvm.federation.site.order_facts import facts_text, next_link, order_digest, order_facts
from fedsvm.federation.site.receipt import IN_SUM, NO_VALUE, Receipt, head_content
from fedsvm.federation.site.signed import OrderSigner, SignatureCheck, order_content
from fedsvm.federation.site.site_journal import SiteJournal
from fedsvm.federation.site.terms import Terms
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.federation.transport.signing import ORDER, RECEIPT, SigningKey, is_signed
from fedsvm.scenarios.cli import application
from fedsvm.scenarios.oversight import receipts, signatures
from fedsvm.scenarios.oversight.receipt_comparison import compare
from tests.conftest import drill
from tests.lying_coordinator import telling
from tests.test_dropouts import fault, total

SITES = ("east", "north", "south")
RUN = b"run-1..."
TERMS = Terms("sums", {}, "ring", {}, 3)
KEY, SITE_KEYS = SigningKey(bytes([9]) * 32), {name: SigningKey(name.encode().ljust(32)) for name in SITES}
VICTIM = "site-3"


def order(number: int, after: int, factor: float = 1.0) -> Order:
    terms = SumTerms((2, 3), 1.0, {}, COORDINATOR)
    return Order("total", "ring", terms, {"factor": factor}, {}, "train", number, SITES, 1.0, after, everyone=True)


# What is signed.


def test_a_signature_covers_run_facts_and_chain() -> None:
    signer, chain = OrderSigner(KEY, RUN, SITES, TERMS), OrderChain(RUN, SITES, TERMS)
    given = signer.sign_order(order(1, 0), 1)
    link = chain.begin(given, 1).digest
    facts = json.loads(order_facts(given, 1))
    changes = [facts_text({**facts, name: "other"}) for name in facts]
    links = [next_link(chain.start, order_digest(each)) for each in (facts_text(facts), *changes)]
    assert links[0] == link
    assert is_signed(KEY.public, given.signature, ORDER, order_content(RUN, link))
    contents = [order_content(RUN, other) for other in links[1:]]
    contents += [order_content(b"run-0...", link), order_content(RUN, b"")]
    assert not any(is_signed(KEY.public, given.signature, ORDER, content) for content in contents)


def test_the_coordinators_chain_is_the_sites_after_rounds_that_were_aborted_or_resumed() -> None:
    signer, chain = OrderSigner(KEY, RUN, SITES, TERMS), OrderChain(RUN, SITES, TERMS)
    resumed = OrderSigner(KEY, RUN, SITES, TERMS)
    for number, after, complete in ((1, 0, True), (2, 1, False), (3, 1, True), (4, 3, True)):
        plain = order(number, after, factor=number)
        given = signer.sign_order(plain, number)
        content = order_content(RUN, chain.begin(given, number).digest)
        assert is_signed(KEY.public, given.signature, ORDER, content)
        if complete:
            signer.add_complete(number, plain)
            resumed.add_complete(number, plain)
    assert resumed.sign_order(order(14, 4), 14) == signer.sign_order(order(14, 4), 14)


# Which signatures a site verifies.


class Orders:
    """Orders of a coordinator, and the check of a site that gets them."""

    def __init__(self, *, each: bool = False) -> None:
        self.signer, self.chain = OrderSigner(KEY, RUN, SITES, TERMS), OrderChain(RUN, SITES, TERMS)
        self.check = SignatureCheck(KEY.public, RUN, each=each)
        self.number = self.last = 0

    def give(self, *, signed: bool = True, complete: bool = True, at_once: bool = False) -> None:
        self.number += 1
        plain = order(self.number, self.last)
        given = self.signer.sign_order(plain, self.number)
        given = given if signed else replace(given, signature=bytes(64))
        self.check.take(given, self.chain.link_of(given, self.number), at_once=at_once)
        self.chain.begin(given, self.number)
        if complete:
            self.signer.add_complete(self.number, plain)
            self.last = self.number


def test_a_site_verifies_one_signature_in_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    verified = list[bytes]()

    def note(public: bytes, signature: bytes, use: bytes, content: bytes) -> bool:
        verified.append(signature)
        return True

    monkeypatch.setattr(signed, "is_signed", note)
    orders = Orders()
    for _ in range(3 * signed.MAX_UNVERIFIED):
        orders.give()
    assert len(verified) == 3
    orders.check.settle()
    orders.check.settle()
    assert len(verified) == 4


def test_a_site_goes_on_for_so_many_orders_without_a_valid_signature() -> None:
    orders = Orders()
    orders.give()
    for _ in range(signed.MAX_UNVERIFIED - 1):
        orders.give(signed=False)
    with pytest.raises(OrderRefused, match=r"it must have the coordinator's signature, .* and has another one"):
        orders.give(signed=False)


def begun(*, each: bool = False) -> Orders:
    orders = Orders(each=each)
    orders.give()
    return orders


def test_a_site_verifies_the_signatures_that_matter_at_once() -> None:
    with pytest.raises(OrderRefused, match="it must have"):
        Orders().give(signed=False)
    with pytest.raises(OrderRefused, match="it must have"):
        begun(each=True).give(signed=False)
    with pytest.raises(OrderRefused, match="it must have"):
        begun().give(signed=False, at_once=True)
    joined = begun()
    joined.check.require_next()
    with pytest.raises(OrderRefused, match="it must have"):
        joined.give(signed=False)


def test_no_later_signature_stands_for_that_of_an_aborted_round() -> None:
    orders = begun()
    orders.give(complete=False)
    orders.give()
    orders.give(signed=False, complete=False)
    with pytest.raises(OrderRefused, match="the order of round 4 must have the coordinator's signature"):
        orders.give()


def test_a_later_signature_stands_for_that_of_a_complete_round() -> None:
    orders = begun()
    orders.give(signed=False)
    orders.give(at_once=True)
    orders.check.settle()


def test_a_site_refuses_all_orders_after_a_signature_that_is_not_valid() -> None:
    orders = begun()
    orders.give(signed=False)
    with pytest.raises(OrderRefused, match=r"it must have the coordinator's signature, .* and has another one"):
        orders.give(signed=False, complete=False, at_once=True)
    later: list[Callable[[], object]] = [
        lambda: orders.give(complete=False),
        lambda: orders.give(complete=False, at_once=True),
        orders.check.settle,
    ]
    for act in later:
        with pytest.raises(OrderRefused, match="the order of round 3 must have the coordinator's signature"):
            act()


def test_a_site_that_found_an_unsigned_order_of_an_aborted_round_never_forgets_it() -> None:
    orders = begun()
    orders.give(signed=False, complete=False)
    for _ in range(2):
        with pytest.raises(OrderRefused, match="the order of round 2 must have the coordinator's signature"):
            orders.give()
    with pytest.raises(OrderRefused, match="the order of round 2 must have the coordinator's signature"):
        orders.check.settle()


def test_a_site_that_verifies_each_signature_refuses_the_forged_order_alone() -> None:
    orders = begun(each=True)
    with pytest.raises(OrderRefused, match="it must have"):
        orders.give(signed=False, complete=False)
    orders.give()
    orders.check.settle()


# Receipts of a run.


def written(
    path: Path,
    *,
    lies: bool = False,
    signs: Collection[int] = (1, 2, 3),
    key: SigningKey = KEY,
    run: bytes = RUN,
    aborted: int = 0,
    form: str = IN_SUM,
    broken: int = 0,
    disguised: int = 0,
) -> Path:
    """Write the receipt of a run of three rounds.

    lies: the coordinator gives another order in the second. signs: the rounds whose orders it signs. aborted: a round
    that the next order does not build on. form: of what leaves. broken: a round that is broken off after a value left.
    disguised: a round whose order has the number of a step that a site takes afterwards by itself.
    """
    site = path.stem
    receipt = Receipt(str(path), "1", key=SITE_KEYS[site], coordinator_key=key.public)
    receipt.record_asked(run, site, TERMS.to_fields(), {"release": True})
    signer, chain = OrderSigner(key, run, SITES, TERMS), OrderChain(run, SITES, TERMS)
    receipt.record_joined(SITES, 20, ("age",), chain.start)
    for number in (1, 2, 3):
        after = number - 2 if aborted and number == aborted + 1 else number - 1
        plain = order(number, after, factor=2.0 if lies and number == 2 else 1.0)
        given = signer.sign_order(replace(plain, phase_round=0) if number == disguised else plain, number)
        given = given if number in signs else replace(given, signature=b"")
        receipt.record_ordered(given, number)
        sent = receipt.begin_step(chain.begin(given, number).digest)
        if number == broken:
            sent.sending("east", np.zeros(6))
            receipt.record_broken(number, "a site left")
        else:
            receipt.record_left(given, number, form)
    receipt.record_ended("completed", {})
    return path


def relinked(path: Path, change: Callable[[list[dict[str, object]]], None]) -> None:
    """Write a receipt anew after a change, as whoever holds the file can, with digests that fit."""
    lines, _ = lines_of.verify_lines(path.read_bytes())
    change(lines)
    digest, content = lines_of._FIRST, b""
    for number, line in enumerate(lines, start=1):
        text = plain_text(line, number)
        digest = lines_of.digest_of(digest, text)
        content += lines_of.line_of(text, digest)
    path.write_bytes(content)


def plain_text(line: dict[str, object], number: int) -> bytes:
    """Return the text of a line without its digest, at a place."""
    return json.dumps({**lines_of._without(line, "digest"), "line": number}).encode()


def signed_again(key: SigningKey, site: str) -> Callable[[list[dict[str, object]]], None]:
    """Return a change that signs the last line anew, which relinking leaves as it is."""

    def change(lines: list[dict[str, object]]) -> None:
        digest = lines_of._FIRST
        for number, line in enumerate(lines[:-1], start=1):
            digest = lines_of.digest_of(digest, plain_text(line, number))
        lines[-1]["signature"] = key.sign(RECEIPT, head_content(RUN.hex(), site, digest.hex())).hex()

    return change


def test_a_whole_receipt_is_signed_by_both(tmp_path: Path) -> None:
    record = receipts.read(written(tmp_path / "east.receipt"))
    assert record.is_whole
    assert record.signed == {"1": 3, "2": 5, "3": 7}
    page = record.to_text()
    for key in (KEY, SITE_KEYS["east"]):
        assert f"signed by: the key {receipts.fingerprint([key.public.hex()])}" in page


def test_two_orders_of_one_round_with_the_coordinators_signature_are_a_proof(tmp_path: Path) -> None:
    east, north = (receipts.read(written(tmp_path / f"{name}.receipt", lies=name == "north")) for name in SITES[:2])
    second, third = compare(east, north).differences
    assert second.startswith("the orders of round 2 differ: line 5 of east and line 5 of north have the coordinator's")
    assert second.endswith("which proves that it gave both")
    assert third.startswith("the chains of orders differ at round 3: line 7 of east")
    done = CliRunner().invoke(application("receipt"), ["receipt", east.path, north.path])
    assert done.exit_code == 3
    assert "which proves that it gave both" in done.output


@pytest.mark.parametrize(
    ("signs", "aborted", "covered"),
    [
        ((3,), 0, {"1", "2", "3"}),
        ((2,), 0, {"1", "2"}),
        ((), 0, set()),
        ((3,), 2, {"1", "3"}),
        ((2, 3), 2, {"1", "2", "3"}),
    ],
)
def test_a_signature_covers_the_orders_that_its_order_builds_on(
    signs: Collection[int], aborted: int, covered: set[str], tmp_path: Path
) -> None:
    record = receipts.read(written(tmp_path / "east.receipt", signs=signs, aborted=aborted))
    assert record.signed.keys() == covered
    without = sorted({"1", "2", "3"} - covered)
    assert record.is_whole is not bool(without)
    named = f"the order{'s' if len(without) > 1 else ''} of round{'s' if len(without) > 1 else ''} {', '.join(without)}"
    assert not without or record.problems[0].endswith(f"no signature of the coordinator covers {named}")


@pytest.mark.parametrize(("form", "broken"), [(NO_VALUE, 0), (IN_SUM, 3)])
def test_orders_without_a_signature_are_named_whether_or_not_a_sum_left(form: str, broken: int, tmp_path: Path) -> None:
    record = receipts.read(written(tmp_path / "east.receipt", signs=(1,), form=form, broken=broken))
    assert record.problems == ("line 6: no signature of the coordinator covers the orders of rounds 2, 3",)


def test_a_sum_in_the_guise_of_a_missed_step_is_compared_and_proved(tmp_path: Path) -> None:
    east = receipts.read(written(tmp_path / "east.receipt"))
    north = receipts.read(written(tmp_path / "north.receipt", lies=True, disguised=2))
    assert north.is_whole and north.signed.keys() == {"1", "2", "3"}
    first, _ = compare(east, north).differences
    assert first.startswith("the orders of round 2 differ") and first.endswith("which proves that it gave both")


def test_one_signature_after_the_fork_proves_it(tmp_path: Path) -> None:
    east = receipts.read(written(tmp_path / "east.receipt", signs=(3,)))
    north = receipts.read(written(tmp_path / "north.receipt", signs=(3,), lies=True))
    assert compare(east, north).differences[0].endswith("which proves that it gave both")


def test_receipts_of_two_runs_prove_nothing_against_the_coordinator(tmp_path: Path) -> None:
    first, later = written(tmp_path / "east.receipt"), written(tmp_path / "north.receipt", run=bytes(len(RUN)))
    assert compare(receipts.read(first), receipts.read(later)).differences == (
        f"the runs are {RUN.hex()} and {bytes(len(RUN)).hex()}; compare receipts of one run",
    )


def test_an_order_that_a_site_made_up_proves_nothing(tmp_path: Path) -> None:
    east, north = written(tmp_path / "east.receipt"), written(tmp_path / "north.receipt", lies=True)

    def forge(lines: list[dict[str, object]]) -> None:
        lines[4]["order"]["order"] = "00" * 32  # type: ignore[index]

    relinked(north, forge)
    relinked(north, signed_again(SITE_KEYS["north"], "north"))
    record = receipts.read(north)
    assert record.problems == (
        "line 6: no signature of the coordinator covers the orders of rounds 2, 3",
        "line 6: its link is not that of the orders of round 2 and before",
    )
    differences = compare(receipts.read(east), record).differences
    (about_orders,) = (each for each in differences if each.startswith("the orders of round 2 differ"))
    assert about_orders.endswith("line 5 of east has the coordinator's signature, which proves nothing")


@pytest.mark.parametrize("name", ["step", "numbers", "sites", "opened_by", "verb", "protocol", "phase"])
def test_a_site_that_changes_a_fact_of_an_order_is_found(name: str, tmp_path: Path) -> None:
    path = written(tmp_path / "east.receipt")

    def forge(lines: list[dict[str, object]]) -> None:
        lines[4]["order"][name] = "other"  # type: ignore[index]

    relinked(path, forge)
    relinked(path, signed_again(SITE_KEYS["east"], "east"))
    lines, _ = lines_of.verify_lines(path.read_bytes())
    assert "line 6: no signature of the coordinator covers the orders of rounds 2, 3" in list(signatures.wrong(lines))


def test_a_site_that_changes_a_link_proves_nothing_and_is_found(tmp_path: Path) -> None:
    east, north = written(tmp_path / "east.receipt"), written(tmp_path / "north.receipt")

    def forge(lines: list[dict[str, object]]) -> None:
        lines[5]["link"] = "00" * 32

    relinked(north, forge)
    relinked(north, signed_again(SITE_KEYS["north"], "north"))
    assert compare(receipts.read(east), receipts.read(north)).differences == (
        "the receipt of north: line 6: its link is not that of the orders of round 2 and before",
    )


def test_an_order_that_a_site_has_as_missed_is_noted_if_it_names_the_site(tmp_path: Path) -> None:
    east, north = written(tmp_path / "east.receipt"), written(tmp_path / "north.receipt")

    def hide(lines: list[dict[str, object]]) -> None:
        facts: dict[str, object] = lines[4]["order"]  # type: ignore[assignment]
        missed = {"2": [facts["after"], order_digest(facts_text(facts)).hex()]}
        lines[4:6] = [{"at": lines[4]["at"], "what": "missed", "orders": missed}]

    relinked(north, hide)
    relinked(north, signed_again(SITE_KEYS["north"], "north"))
    comparison = compare(receipts.read(east), receipts.read(north))
    assert not comparison.differences
    assert comparison.notes == ("round 2 was ordered of north too, and the receipt of north has it as missed",)


def test_a_receipt_written_anew_by_another_than_the_site_is_found(tmp_path: Path) -> None:
    path = written(tmp_path / "east.receipt")

    def forge(lines: list[dict[str, object]]) -> None:
        del lines[6:8]

    relinked(path, forge)
    assert receipts.read(path).problems == ("line 8: the signature is not that of the site",)

    def cut(lines: list[dict[str, object]]) -> None:
        del lines[-1]

    relinked(path, cut)
    assert receipts.read(path).problems == ("the signature of the site is missing",)


def test_keys_that_a_site_invents_are_found_with_the_known_ones(tmp_path: Path) -> None:
    own = SigningKey()
    path = written(tmp_path / "east.receipt", key=own)
    assert receipts.read(path).is_whole  # it signed both itself: only whoever knows the keys can tell
    known = {COORDINATOR: KEY.public, "east": SITE_KEYS["east"].public}
    assert receipts.read(path, known).problems == ("the signing-key of coordinator is not that of coordinator.key",)
    (tmp_path / "keys").mkdir()
    public, secret = certificates.create(tmp_path / "keys", COORDINATOR)
    secret.unlink()
    done = CliRunner().invoke(application("receipt"), ["receipt", str(path), "--keys", str(public.parent)])
    assert done.exit_code == 3
    assert "the signing-key of coordinator is not that of coordinator.key" in done.output
    assert "not the key in coordinator.key" in done.output
    assert "not compared, since the folder of --keys has no east.key" in done.output
    right = receipts.read(path, {"east": SITE_KEYS["east"].public})
    assert right.compared["site"] == "the key in east.key"
    assert receipts.read(path).compared == {}
    assert any("has no coordinator.key" in note for note in compare(right, right).notes)


# Lies over real processes.


@contextmanager
def signing_whatever(federation: Federation, tell: Callable[[str, Order], Order]) -> Iterator[None]:
    """Tell sites other orders, each with a valid signature on the chain of the site that gets it."""
    honest = federation._runner._signer
    assert honest is not None

    def signed(site: str, order: Order) -> Order:
        told = tell(site, order)
        if told == order:
            return order
        liar = OrderSigner(honest._key, honest._run, federation.membership.all_sites, TERMS)
        liar._chain._head = honest._chain._head
        number = federation.progress.round
        return liar.sign_order(replace(told, signature=b""), number)

    with telling(signed):
        yield


def another_factor(site: str, order: Order) -> Order:
    return replace(order, parameters={"factor": 0.0}) if site == VICTIM and order.step == "total" else order


UNSIGNED: dict[str, tuple[Callable[[str, Order], Order], str]] = {
    "changed": (another_factor, "has another one"),
    "stripped": (lambda site, order: replace(order, signature=b""), "has none"),
    "signed by another": (lambda site, order: replace(order, signature=bytes(64)), "has another one"),
}


@pytest.mark.parametrize("lie", UNSIGNED)
def test_sites_carry_out_no_order_without_the_coordinators_signature(lie: str, tmp_path: Path) -> None:
    tell, said = UNSIGNED[lie]
    with (
        drill(3, receipts=tmp_path) as federation,
        telling(tell),
        pytest.raises(SiteFailed, match=f"it must have the coordinator's signature, .* and {said}"),
    ):
        total(federation)


def steps_in(journal: Path) -> list[str]:
    """Return the steps of the orders in a site's journal."""
    return [record.order.fields["step"] for record in SiteJournal(str(journal)).earlier if record.order.kind == "order"]


def forged(site: str, order: Order) -> Order:
    return replace(order, step="work", parameters={"seconds": 0.0}) if site == VICTIM else order


def test_a_forged_order_changes_neither_script_nor_chain_nor_journal(tmp_path: Path) -> None:
    with drill(3, program="ordered", encrypted=False, receipts=tmp_path, journals=tmp_path) as federation:
        federation.run("keep", remember=True, number=1.0)
        with telling(forged), pytest.raises(SiteFailed, match="it must have the coordinator's signature"):
            federation.run("keep", remember=True, number=2.0)
        federation.run("keep", remember=True, number=3.0)
        federation.run("work", seconds=0.0)
        assert federation.gather("kept", shape=()) == dict.fromkeys(federation.sites, 3.0)
    assert steps_in(tmp_path / f"{VICTIM}.journal") == ["keep", "keep", "work", "kept"]


def test_without_the_check_of_signatures_a_forged_order_moves_the_script(tmp_path: Path) -> None:
    process = "tests.unsigned_site_process"
    with drill(
        3, program="ordered", encrypted=False, module=process, receipts=tmp_path, journals=tmp_path
    ) as federation:
        with telling(forged):
            federation.run("keep", remember=True, number=2.0)
        with pytest.raises(SiteFailed, match="step 'keep' is out of place"):
            federation.run("keep", remember=True, number=3.0)
    assert steps_in(tmp_path / f"{VICTIM}.journal") == ["work"]


def test_a_signed_order_of_another_run_is_refused(tmp_path: Path) -> None:
    old: dict[str, Order] = {}
    for run in ("first", "second"):
        (tmp_path / run).mkdir()
    with drill(3, receipts=tmp_path / "first") as federation, telling(old.setdefault):
        total(federation)
    with (
        drill(3, receipts=tmp_path / "second") as federation,
        telling(lambda site, order: old[site]),
        pytest.raises(SiteFailed, match="it must have the coordinator's signature, bound to the run"),
    ):
        total(federation)


def test_a_coordinator_that_signs_two_orders_is_convicted_by_two_receipts(tmp_path: Path) -> None:
    with drill(3, receipts=tmp_path) as federation:
        total(federation)
        with signing_whatever(federation, another_factor), pytest.raises(SiteFailed) as caught:
            total(federation)
        named = [site for site in federation.sites if site in str(caught.value)]  # which have begun the round
    first, second = (receipts.read(tmp_path / f"{site}.receipt") for site in named)
    comparison = compare(first, second)
    (said,) = (each for each in comparison.differences if each.startswith("the orders of round 2 differ"))
    assert said.endswith("which proves that it gave both"), said
    assert np.all([record.signed.keys() == {"1", "2"} for record in (first, second)])


def test_orders_at_the_end_that_the_coordinator_did_not_sign_are_in_the_receipt(tmp_path: Path) -> None:
    with drill(3, receipts=tmp_path) as federation:
        total(federation)
        with telling(lambda site, order: replace(order, signature=b"")):
            total(federation)
            total(federation)
    for record in receipts.select_receipts(tmp_path, None):
        assert record.outcome.endswith(
            "the order of round 3 must have the coordinator's signature, bound to the run and to all orders before it, "
            "and has none"
        )
        (problem,) = record.problems
        assert problem.endswith("no signature of the coordinator covers the orders of rounds 2, 3")
        assert record.signed.keys() == {"1"}


def test_a_sum_that_hides_no_value_needs_its_signature_at_once(tmp_path: Path) -> None:
    with drill(3, protocol="plain", receipts=tmp_path) as federation:
        total(federation)
        with (
            telling(lambda site, order: replace(order, signature=b"")),
            pytest.raises(SiteFailed, match=r"it must have the coordinator's signature, .* and has none"),
        ):
            total(federation)


def test_receipts_of_a_run_whose_coordinator_is_honest_never_differ(tmp_path: Path) -> None:
    kill = {"site-2": fault("kill", 3, 0)}
    with drill(4, faults=kill, rejoin=True, receipts=tmp_path) as federation, federation.phase("train"):
        federation.run("keep", remember=True, number=1.0)
        for _ in range(4):
            total(federation)
    records = {record.site: record for record in receipts.select_receipts(tmp_path, None)}
    assert all(record.is_whole for record in records.values())
    back, *others = (records[site] for site in ("site-2", "site-1", "site-3"))
    assert back.restarts == 1
    assert back.unsettled == ("round 3 (total) was ordered; whether its value left is not known",)
    for other in others:
        comparison = compare(back, other)
        assert comparison.differences == ()
        assert comparison.rounds >= 5  # the round that was aborted may have ended before its order came to a site
