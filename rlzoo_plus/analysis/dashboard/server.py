"""The server's process: Streamlit, and beside it a thread that reads the runs already.

A page needs pandas and the index of runs, which take longer than the server itself. They are ready
when the browser asks, or nearly so.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from pathlib import Path

from rlzoo_plus.errors import ConfigError


def _prepare(folder: Path) -> None:
    """Import and read what the first page needs; what fails here, fails again in the page."""
    with contextlib.suppress(ConfigError, OSError, ImportError):
        import pandas as pd

        from rlzoo_plus.analysis.dashboard import view

        pd.DataFrame(view.table(view.shared_runs(folder).look(), folder))


def main() -> None:
    """Run Streamlit with this process's arguments; the last one is the folder."""
    threading.Thread(target=_prepare, args=[Path(sys.argv[-1])], daemon=True).start()
    from streamlit.web.cli import main as streamlit

    streamlit()


if __name__ == "__main__":
    main()
