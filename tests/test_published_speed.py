"""What the documentation says about speed is what was measured."""

import json
import re

from benchmarks.processes import ROOT
from benchmarks.side_by_side.__main__ import table


def test_the_page_shows_the_table_of_the_measurement():
    saved = ROOT / "benchmarks" / "results" / "side_by_side.json"
    page = saved.with_suffix(".md").read_text(encoding="utf-8")
    assert table(json.loads(saved.read_text(encoding="utf-8"))) in page


def test_every_time_compared_with_rl_zoo3_says_on_how_many_cores():
    folders = (ROOT / "docs", ROOT / "benchmarks" / "results")
    pages = [ROOT / "README.md", *(page for folder in folders for page in folder.glob("*.md"))]
    compared = re.compile(r"rl_zoo3[^|]*\d\.\d+( times|,| instead| of)|times as fast")
    unsaid = [
        f"{page.name}: {paragraph[:80]}"
        for page in pages
        for paragraph in re.split(r"\n\n|\n(?=- )", page.read_text(encoding="utf-8"))
        if compared.search(paragraph) and not re.search(r"\bcores?\b", paragraph)
    ]
    assert unsaid == []
