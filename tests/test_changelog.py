"""The changelog has the form of keepachangelog.com, and few enough bullets to read."""

from __future__ import annotations

import re

from tests.conftest import ROOT

KINDS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]


def test_each_version_has_known_sections_in_order_and_at_most_60_bullets() -> None:
    _, *versions = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert versions[0].startswith("[Unreleased]\n")
    for version in versions:
        sections = re.findall(r"^### (.*)$", version, re.MULTILINE)
        assert sections == [kind for kind in KINDS if kind in sections]
        assert len(re.findall(r"^- ", version, re.MULTILINE)) <= 60
