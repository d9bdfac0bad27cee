"""Pinned keys: a coordinator that swaps a site's keys, or invents a site, is refused by the other sites."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from fedsvm.federation.errors import FederationError, OrderRefused
from fedsvm.federation.hosts import certificates
from fedsvm.federation.site.rules import SiteRules
from fedsvm.federation.site.site_policy import SitePolicy
from fedsvm.federation.site.terms import Terms
from fedsvm.federation.transport.keys import COORDINATOR, Party, Roster, voucher_content
from fedsvm.federation.transport.signing import ORDER, PARTY, RECEIPT, SigningKey, is_signed
from fedsvm.scenarios.oversight import receipts
from fedsvm.scenarios.oversight.receipt_comparison import compare
from fedsvm.scenarios.schema.policy import PolicySpec
from tests.commands import fedsvm
from tests.hosts import NAMES, hosts

RUN = b"run-1..."
TERMS = Terms("pan-svm", {}, "masked", {}, 3)
KEYS = {name: SigningKey(bytes([number]) * 32) for number, name in enumerate(NAMES, start=1)}
PINS = {name: key.public for name, key in KEYS.items()}
LIAR = """\
import functools, sys
from fedsvm.federation.channel.agreement import KeyAgreement
from fedsvm.federation.hosts import remote_federation

def lying(party, roster):  # to be between north and east, which is told the coordinator's key for that of north
    between = roster["north"]._replace(agreement_key=KeyAgreement(b"").public)
    return roster.replace(between) if party == "east" else roster

remote_federation.SiteLinks = functools.partial(remote_federation.SiteLinks, views=lying)
del sys.argv[:3]
from fedsvm.__main__ import main
main()
"""


def party(name: str, run: bytes = RUN, terms: Terms = TERMS) -> Party:
    made = Party(name, "", name.encode().ljust(32), name.encode().rjust(32))
    return made._replace(voucher=KEYS[name].sign(PARTY, voucher_content(run, made, terms.content)))


def roster(**changed: Party) -> Roster:
    sites = {name: party(name) for name in NAMES} | changed
    return Roster([Party(COORDINATOR, "", b"c" * 32), *sites.values()])


POLICY = SitePolicy(NAMES, TERMS, SiteRules(pinned=True), pins=PINS)


def test_keys_that_their_site_signed_are_accepted() -> None:
    POLICY.check_pins(roster(), RUN, "east")
    moved = party("north")._replace(address="tcp://elsewhere:1")  # an address is the coordinator's to say
    POLICY.check_pins(roster(north=moved), RUN, "east")


@pytest.mark.parametrize(
    "swapped",
    [
        party("north")._replace(agreement_key=b"m" * 32),
        party("north")._replace(public_key=b"m" * 32),
        party("north")._replace(agreement_key=None),
        party("north")._replace(voucher=None),
        party("north")._replace(voucher=party("south").voucher),
        party("north", run=b"run-0..."),
        party("north", terms=replace(TERMS, min_sites=2)),
    ],
    ids=["agreement key", "socket key", "no agreement key", "stripped", "of another site", "replayed", "other terms"],
)
def test_a_swapped_key_is_refused_and_the_site_named(swapped: Party) -> None:
    with pytest.raises(OrderRefused, match=r"the keys of north are not signed with its pinned key"):
        POLICY.check_pins(roster(north=swapped), RUN, "east")


def test_an_invented_site_is_refused() -> None:
    invented = Party("west", "", b"w" * 32, b"v" * 32, bytes([1]) * 64)
    with pytest.raises(OrderRefused, match=r"the key of west is not among the pinned keys"):
        POLICY.check_pins(roster(west=invented), RUN, "east")


def test_a_policy_that_wants_pinned_keys_refuses_a_site_without_any() -> None:
    bare = SitePolicy(NAMES, TERMS)
    bare.check_pins(roster(), RUN, "east")
    with pytest.raises(OrderRefused, match="must be pinned, and none are; start it with fedsvm site --sites"):
        replace(bare, rules=SiteRules(pinned=True)).check_pins(roster(), RUN, "east")


def test_a_signature_is_of_one_key_one_use_and_one_content() -> None:
    key, other = SigningKey(), SigningKey()
    assert SigningKey(key.seed).public == key.public != other.public
    for use in (ORDER, PARTY, RECEIPT):
        signature = key.sign(use, b"said")
        assert len(signature) == 64
        assert [each for each in (ORDER, PARTY, RECEIPT) if is_signed(key.public, signature, each, b"said")] == [use]
        assert not is_signed(key.public, signature, use, b"else")
        assert not is_signed(other.public, signature, use, b"said")
        assert not is_signed(key.public, signature[:-1], use, b"said")
        assert not is_signed(b"short", signature, use, b"said")


def test_key_files_have_a_pair_for_signatures(tmp_path: Path) -> None:
    public, secret = certificates.create(tmp_path, "north")
    signing = certificates.read_secret(secret).signing
    assert signing is not None
    assert certificates.read_signing(public) == signing.public
    assert "signing-secret" not in public.read_text()
    secret.unlink()
    assert certificates.read_pinned(tmp_path) == {"north": signing.public}
    key = next(line for line in public.read_text().splitlines() if "signing-key" in line)
    _, south = certificates.create(tmp_path, "south")
    south.unlink()
    text = (tmp_path / "south.key").read_text()
    own = next(line for line in text.splitlines() if "signing-key" in line)
    (tmp_path / "south.key").write_text(text.replace(own, key))
    with pytest.raises(FederationError, match="north and south have the same signing-key"):
        certificates.read_pinned(tmp_path)
    (tmp_path / "south.key").write_text(text.replace(own, ""))
    with pytest.raises(FederationError, match=r"south.key has no signing-key; ask south to make new keys"):
        certificates.read_pinned(tmp_path)


def test_a_pinned_policy_needs_the_keys_of_sites(tmp_path: Path) -> None:
    certificates.create(tmp_path, "north")
    (tmp_path / "north.toml").write_text("pinned = true\n")
    done = fedsvm(
        *("site", "--coordinator", "tcp://127.0.0.1:9", "--coordinator-key", "north.key", "--key", "north.key_secret"),
        *("--data", "none.csv", "--policy", "north.toml"),
        folder=tmp_path,
    )
    assert done.returncode == 2
    assert "north.toml has pinned = true; add --sites" in done.stderr


def test_a_simulation_has_no_pinned_policy() -> None:
    with pytest.raises(ValidationError, match="a simulation makes its keys itself"):
        PolicySpec.model_validate({"site": 1, "pinned": True})


def test_real_sites_refuse_a_coordinator_that_swaps_a_key_and_run_with_an_honest_one(tmp_path: Path) -> None:
    with hosts(tmp_path) as there:
        (tmp_path / "liar.py").write_text(LIAR)
        (tmp_path / "careful.toml").write_text("pinned = true\nmin_cell = 0\n")
        careful = ("--policy", "careful.toml", "--sites", "sites")
        there.within["coordinator"] = (sys.executable, "liar.py")
        liar = there.coordinator("--set", "protocol.sum=masked")
        sites = {name: there.site(name, liar, *(careful if name == "east" else ())) for name in NAMES}
        assert liar.ends() != 0
        sites["east"].says("the keys of north are not signed with its pinned key")
        for site in sites.values():
            site.ends()
        there.within.clear()
        honest = there.coordinator("--set", "protocol.sum=masked", "--out", "honest")
        sites = {name: there.site(name, honest, *careful) for name in NAMES}
        assert [each.ends() for each in (honest, *sites.values())] == [0] * 4, [each.said for each in sites.values()]
        keys = {
            **certificates.read_pinned(tmp_path / "sites"),
            COORDINATOR: certificates.read_signing(tmp_path / "coordinator.key"),
        }
        run = receipts.select_receipts(tmp_path, None, {name: key for name, key in keys.items() if key})
        last = {record.site: record for record in run if record.outcome == "completed"}
        assert sorted(last) == sorted(NAMES)
        for record in last.values():
            assert record.is_whole, record.problems
            assert record.signed.keys() == record.links.keys()
        assert not compare(last["east"], last["south"]).differences
