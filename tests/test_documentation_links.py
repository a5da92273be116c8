"""Links of the pages outside of docs/, which `mkdocs build` does not check, and tables of keys."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(?:\]\(|^\[[^\]]+\]:\s+)(?!https?:|#)([^)\s#]+)(?:#([\w-]+))?", re.MULTILINE)
NAMED = re.compile(r"`((?:benchmarks|examples|rlzoo_plus|scripts|tests)/[\w./-]+)`")
TABLE = re.compile(r"^\| key \| default \|.*\n\|[-|]+\n((?:\|.*\n)+)", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Return the anchors that a repository page gives to the headings of a file."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in headings}


FOLDERS = [".", "benchmarks", "benchmarks/results", "rlzoo_plus/training/resume"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_link_of_a_page_outside_of_docs_leads_to_a_file_and_a_heading(folder):
    broken = []
    links = [
        link
        for file in (ROOT / folder).glob("*.md")
        for link in LINK.findall(file.read_text(encoding="utf-8"))
    ]
    for target, anchor in links:
        page = ROOT / folder / target
        if not page.exists() or (anchor and anchor not in anchors(page)):
            broken.append(f"{target}#{anchor}")
    assert broken == []


def test_every_file_of_the_repository_that_a_page_names_exists():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    # A room that may be deleted.
    left_out = {"rlzoo_plus/fast"}
    missing = [
        f"{page.name}: {path}"
        for page in pages
        for path in NAMED.findall(page.read_text(encoding="utf-8"))
        if not (ROOT / path).exists() and path not in left_out
    ]
    assert missing == []


def documented_keys() -> dict[str, tuple[str, str]]:
    """Return the keys in all tables with the columns `key` and `default`: default, and page."""
    found = {}
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for table in TABLE.findall(page.read_text(encoding="utf-8")):
            for row in table.splitlines():
                keys, default = (cell.strip() for cell in row.split("|")[1:3])
                for key in re.findall(r"`([\w.]+)`", keys):
                    found[key] = (default.strip("`"), page.name)
    return found


def test_every_key_in_a_table_exists_and_has_the_default_that_it_says(compose_values):
    names = [path.stem for path in (ROOT / "conf" / "infra").glob("*.yaml")]
    # The default environment chooses tuned values of its own.
    composed = [_leaves(compose_values(f"infra={name}", "env=gym")[0]) for name in names]
    wrong = {}
    for key, (default, page) in documented_keys().items():
        values = {str(yaml.safe_load(default))} if default else set()
        known = {str(leaves[key]) for leaves in composed if key in leaves}
        if not known or (values - known and default != "filled in"):
            wrong[f"{page}: {key}"] = (default, sorted(known))
    assert wrong == {}


def test_the_tables_have_every_key_that_a_run_has(compose_values):
    sections = ("env", "algo", "network", "infra", "hpo", "tracker")
    keys = [key for key in _leaves(compose_values()[0]) if key.partition(".")[0] not in sections]
    assert sorted(set(keys) - set(documented_keys())) == []


def _leaves(values: dict, prefix: str = "") -> dict:
    leaves = {}
    for key, value in values.items():
        is_section = isinstance(value, dict) and value
        leaves |= _leaves(value, f"{prefix}{key}.") if is_section else {f"{prefix}{key}": value}
    return leaves


def test_the_number_of_algorithms_is_that_of_their_files():
    text = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", text, re.MULTILINE)
    named = {name for cell in table for name in re.findall(r"`(\w+)`", cell)}
    files = {path.stem for path in (ROOT / "conf" / "algo").glob("*.yaml")}
    assert files <= named
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*.md"))
    counts = re.findall(r"(\d+) algorithms|algorithm, see .*\| (\d+)", pages)
    assert {number for pair in counts for number in pair if number} == {str(len(files))}
