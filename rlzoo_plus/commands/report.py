"""`rlzoo-plus report`: one HTML file about runs, a sweep or a study; or a paper's appendix."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.atomic import write_atomic
from rlzoo_plus.artifacts.untrusted import LONGEST_LINE, printable
from rlzoo_plus.commands.run_groups import RUNS_HELP, run_groups
from rlzoo_plus.commands.typed import command_parser
from rlzoo_plus.config.catalog import ALGORITHMS, AlgorithmSpec
from rlzoo_plus.errors import ConfigError


def main(arguments: list[str]) -> int:
    """Write the report, or the appendix, and print its path."""
    parser = command_parser(
        "report",
        "Write a report as one HTML file that needs no network and runs no script: learning "
        "curves, scores, comparison, videos of the best and the worst seed, differences of the "
        "configurations, provenance, and failures with their reason. --appendix writes what a "
        "paper's appendix needs instead: hyperparameters that differ from the library's defaults, "
        "seeds, hours, versions and machines.",
        "outputs/sweeps/first --out report.html",
    )
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUNS", help=RUNS_HELP)
    add("--out", type=Path, metavar="FILE.html", help="the report (default: report.html)")
    add("--title", help="default: the names of the runs")
    add("--appendix", type=Path, metavar="FILE", help="FILE.tex or FILE.md")
    options = parser.parse_args(arguments)
    out: Path | None = options.out
    paper: Path | None = options.appendix
    if out is None and paper is None:
        out = Path("report.html")
    if out is not None and out.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"{out}: a report is an HTML file. Give a name that ends in .html.")
    if paper is not None and paper.suffix.lower() not in (".tex", ".md"):
        raise ConfigError(f"{paper}: an appendix is LaTeX or Markdown. End it in .tex or .md.")

    from rlzoo_plus.dashboard import appendix, html_report

    groups = run_groups(options.runs)
    entries = list({r.summary.path.resolve(): r for runs in groups.values() for r in runs}.values())
    if paper is not None:
        _write(paper, appendix.appendix(entries, paper.suffix.lower(), _library_defaults))
    if out is not None:
        folders = [Path(name) for name in options.runs if Path(name).is_dir()]
        title = options.title or ", ".join(Path(name).name or name for name in options.runs)
        _write(out, html_report.html_report(title, entries, folders))
    return 0


def _library_defaults(algo: str) -> Mapping[str, Any]:
    """Return the arguments of an algorithm's class with their defaults.

    Of a class that only the run names, none are known: it is not imported.
    """
    from rlzoo_plus.agents.factory import algorithm_class

    spec = ALGORITHMS.get(algo)
    if not isinstance(spec, AlgorithmSpec):
        return {}
    parameters = inspect.signature(algorithm_class(spec)).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def _write(out: Path, text: str) -> None:
    try:
        write_atomic(out, text)
    except OSError as error:
        raise ConfigError(f"{out} cannot be written: {error.strerror}. Set another one.") from error
    print(printable(out, LONGEST_LINE))
