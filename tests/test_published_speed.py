"""What the documentation says about speed is what was measured."""

import json

from benchmarks.processes import ROOT
from benchmarks.side_by_side.__main__ import table


def test_the_page_shows_the_table_of_the_measurement():
    saved = ROOT / "benchmarks" / "results" / "side_by_side.json"
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert table(json.loads(saved.read_text(encoding="utf-8"))) in page
