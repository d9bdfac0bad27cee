"""Signed orders and receipts: lies of a coordinator with keys, over real processes, and receipts that sites forge."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fedsvm.federation.control import Order, SumTerms
from fedsvm.federation.errors import SiteFailed
from fedsvm.federation.federation import Federation
from fedsvm.federation.hosts import certificates
from fedsvm.federation.site import receipt as lines_of
from fedsvm.federation.site.chain import OrderChain
from fedsvm.federation.site.receipt import IN_SUM, Receipt, head_content
from fedsvm.federation.site.signed import OrderSigner, order_content, order_facts
from fedsvm.federation.site.site_journal import SiteJournal
from fedsvm.federation.site.terms import Terms
from fedsvm.federation.transport.keys import COORDINATOR
from fedsvm.federation.transport.signing import ORDER, RECEIPT, SigningKey, is_signed
from fedsvm.scenarios.cli import application
from fedsvm.scenarios.oversight import receipts, signatures
from tests.conftest import drill
from tests.lying_coordinator import telling
from tests.test_dropouts import total

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
    link = chain.begin(given, 1).digest.hex()
    facts = order_facts(given, 1)
    assert is_signed(KEY.public, given.signature, ORDER, order_content(RUN.hex(), facts, link))
    changes = [{**facts, name: "other"} for name in facts]
    contents = [order_content(RUN.hex(), changed, link) for changed in changes]
    contents += [order_content(b"run-0...".hex(), facts, link), order_content(RUN.hex(), facts, "00")]
    assert not any(is_signed(KEY.public, given.signature, ORDER, content) for content in contents)


def test_the_coordinators_chain_is_the_sites_after_rounds_that_were_aborted_or_resumed() -> None:
    signer, chain = OrderSigner(KEY, RUN, SITES, TERMS), OrderChain(RUN, SITES, TERMS)
    resumed = OrderSigner(KEY, RUN, SITES, TERMS)
    for number, after, complete in ((1, 0, True), (2, 1, False), (3, 1, True), (4, 3, True)):
        plain = order(number, after, factor=number)
        given = signer.sign_order(plain, number)
        content = order_content(RUN.hex(), order_facts(given, number), chain.begin(given, number).digest.hex())
        assert is_signed(KEY.public, given.signature, ORDER, content)
        if complete:
            signer.add_complete(number, plain)
            resumed.add_complete(number, plain)
    assert resumed.sign_order(order(14, 4), 14) == signer.sign_order(order(14, 4), 14)


# Receipts of a run.


def written(path: Path, *, lies: bool = False, signs: bool = True, key: SigningKey = KEY, run: bytes = RUN) -> Path:
    """Write the receipt of a run of three rounds. lies: the coordinator signs another order in the second."""
    site = path.stem
    receipt = Receipt(str(path), "1", key=SITE_KEYS[site], coordinator_key=key.public)
    receipt.record_asked(run, site, TERMS.to_fields(), {"release": True})
    signer, chain = OrderSigner(key, run, SITES, TERMS), OrderChain(run, SITES, TERMS)
    for number in (1, 2, 3):
        given = order(number, number - 1, factor=2.0 if lies and number == 2 else 1.0)
        given = signer.sign_order(given, number) if signs else given
        receipt.record_ordered(given, number)
        receipt.begin_step(chain.begin(given, number).digest)
        receipt.left(given, number, IN_SUM)
    receipt.record_ended("completed", {})
    return path


def relinked(path: Path, change: Callable[[list[dict[str, object]]], None]) -> None:
    """Write a receipt anew after a change, as whoever holds the file can, with digests that fit."""
    lines, _ = lines_of.verify_lines(path.read_bytes())
    change(lines)
    digest = lines_of._FIRST
    texts = []
    for number, line in enumerate(lines, start=1):
        plain = {**lines_of._without(line, "digest"), "line": number}
        digest = lines_of._digest_of(digest, lines_of._canonical(plain))
        texts.append(json.dumps({**plain, "digest": digest.hex()}))
    path.write_text("\n".join(texts) + "\n")


def signed_again(key: SigningKey, site: str) -> Callable[[list[dict[str, object]]], None]:
    """Return a change that signs the last line anew, which relinking leaves as it is."""

    def change(lines: list[dict[str, object]]) -> None:
        digest = lines_of._FIRST
        for number, line in enumerate(lines[:-1], start=1):
            plain = {**lines_of._without(line, "digest"), "line": number}
            digest = lines_of._digest_of(digest, lines_of._canonical(plain))
        lines[-1]["signature"] = key.sign(RECEIPT, head_content(RUN.hex(), site, digest.hex())).hex()

    return change


def test_a_whole_receipt_is_signed_by_both(tmp_path: Path) -> None:
    record = receipts.read(written(tmp_path / "east.receipt"))
    assert record.is_whole
    assert record.signed == {"1": 2, "2": 4, "3": 6}
    page = record.to_text()
    for key in (KEY, SITE_KEYS["east"]):
        assert f"signed by: the key {receipts.fingerprint([key.public.hex()])}" in page


def test_two_orders_of_one_round_with_the_coordinators_signature_are_a_proof(tmp_path: Path) -> None:
    east, north = (receipts.read(written(tmp_path / f"{name}.receipt", lies=name == "north")) for name in SITES[:2])
    second, third = receipts.compare(east, north).differences
    assert second.startswith("the orders of round 2 differ: line 4 of east and line 4 of north have the coordinator's")
    assert second.endswith("which proves that it gave both")
    assert third.startswith("the chains of orders differ at round 3: line 6 of east")
    done = CliRunner().invoke(application("receipt"), ["receipt", east.path, north.path])
    assert done.exit_code == 3
    assert "which proves that it gave both" in done.output


def test_receipts_of_two_runs_prove_nothing_against_the_coordinator(tmp_path: Path) -> None:
    first, later = written(tmp_path / "east.receipt"), written(tmp_path / "north.receipt", run=bytes(len(RUN)))
    assert receipts.compare(receipts.read(first), receipts.read(later)).differences == (
        f"the runs are {RUN.hex()} and {bytes(len(RUN)).hex()}; compare receipts of one run",
    )


def test_an_order_that_a_site_made_up_proves_nothing(tmp_path: Path) -> None:
    east, north = written(tmp_path / "east.receipt"), written(tmp_path / "north.receipt", lies=True)

    def forge(lines: list[dict[str, object]]) -> None:
        lines[3]["order"] = "00" * 32

    relinked(north, forge)
    relinked(north, signed_again(SITE_KEYS["north"], "north"))
    record = receipts.read(north)
    assert record.problems == ("line 5: the order of round 2 is not signed by the coordinator",)
    differences = receipts.compare(receipts.read(east), record).differences
    (about_orders,) = (each for each in differences if each.startswith("the orders of round 2 differ"))
    assert about_orders.endswith("line 4 of east has the coordinator's signature, which proves nothing")


@pytest.mark.parametrize("name", ["step", "numbers", "sites", "opened_by", "verb", "protocol", "phase"])
def test_a_site_that_changes_a_fact_of_an_order_is_found(name: str, tmp_path: Path) -> None:
    path = written(tmp_path / "east.receipt")

    def forge(lines: list[dict[str, object]]) -> None:
        lines[3][name] = "other"

    relinked(path, forge)
    relinked(path, signed_again(SITE_KEYS["east"], "east"))
    lines, _ = lines_of.verify_lines(path.read_bytes())
    assert "line 5: the order of round 2 is not signed by the coordinator" in list(signatures.wrong(lines))


def test_a_receipt_written_anew_by_another_than_the_site_is_found(tmp_path: Path) -> None:
    path = written(tmp_path / "east.receipt")

    def forge(lines: list[dict[str, object]]) -> None:
        del lines[5:7]

    relinked(path, forge)
    assert receipts.read(path).problems == ("line 7: the signature is not that of the site",)

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
    assert any("has no coordinator.key" in note for note in receipts.compare(right, right).notes)


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
    with drill(3, program="ordered", receipts=tmp_path, journals=tmp_path) as federation:
        federation.run("keep", remember=True, number=1.0)
        with telling(forged), pytest.raises(SiteFailed, match="it must have the coordinator's signature"):
            federation.run("keep", remember=True, number=2.0)
        federation.run("keep", remember=True, number=3.0)
        federation.run("work", seconds=0.0)
        assert federation.gather("kept", shape=()) == dict.fromkeys(federation.sites, 3.0)
    assert steps_in(tmp_path / f"{VICTIM}.journal") == ["keep", "keep", "work", "kept"]


def test_without_the_check_of_signatures_a_forged_order_moves_the_script(tmp_path: Path) -> None:
    process = "tests.unsigned_site_process"
    with drill(3, program="ordered", module=process, receipts=tmp_path, journals=tmp_path) as federation:
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
    comparison = receipts.compare(first, second)
    (said,) = (each for each in comparison.differences if each.startswith("the orders of round 2 differ"))
    assert said.endswith("which proves that it gave both"), said
    assert np.all([record.signed.keys() == {"1", "2"} for record in (first, second)])
