"""`rlzoo-plus report`: one HTML file about runs, a sweep or a study."""

from __future__ import annotations

from pathlib import Path

from rlzoo_plus.artifacts.atomic import write_atomic
from rlzoo_plus.artifacts.untrusted import LONGEST_LINE, printable
from rlzoo_plus.commands.run_groups import RUNS_HELP, run_groups
from rlzoo_plus.commands.typed import command_parser
from rlzoo_plus.errors import ConfigError


def main(arguments: list[str]) -> int:
    """Write the report and print its path."""
    parser = command_parser(
        "report",
        "Write a report as one HTML file that needs no network and runs no script: learning "
        "curves, scores, comparison, videos of the best and the worst seed, differences of the "
        "configurations, provenance, and failures with their reason.",
        "outputs/sweeps/first --out report.html",
    )
    parser.add_argument("runs", nargs="+", metavar="RUNS", help=RUNS_HELP)
    out_help = "the file (default: %(default)s)"
    parser.add_argument(
        "--out", type=Path, default=Path("report.html"), metavar="FILE.html", help=out_help
    )
    parser.add_argument("--title", help="default: the names of the runs")
    options = parser.parse_args(arguments)
    out: Path = options.out
    if out.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"{out}: a report is an HTML file. Give a name that ends in .html.")

    from rlzoo_plus.analysis.html_report import html_report

    groups = run_groups(options.runs)
    entries = list({r.summary.path.resolve(): r for runs in groups.values() for r in runs}.values())
    folders = [Path(name) for name in options.runs if Path(name).is_dir()]
    title = options.title or ", ".join(Path(name).name or name for name in options.runs)
    try:
        write_atomic(out, html_report(title, entries, folders))
    except OSError as error:
        raise ConfigError(f"{out} cannot be written: {error.strerror}. Set another one.") from error
    print(printable(out, LONGEST_LINE))
    return 0
