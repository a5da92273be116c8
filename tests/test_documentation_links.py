"""Links of the pages outside of docs/; `mkdocs build --strict` checks those inside."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(?:\]\(|^\[[^\]]+\]:\s+)(?!https?:|#)([^)\s#]+)(?:#([\w-]+))?", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Return the anchors that a repository page gives to the headings of a file."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in headings}


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_every_link_of_a_root_page_leads_to_a_file_and_a_heading(name):
    broken = []
    for target, anchor in LINK.findall((ROOT / name).read_text(encoding="utf-8")):
        page = ROOT / target
        if not page.exists() or (anchor and anchor not in anchors(page)):
            broken.append(f"{target}#{anchor}")
    assert broken == []
