"""The worker of a job of `support.fake_batch`, with short times, that calls the suite's functions.

Use: python -m support.batch_worker FOLDER STORE/SWEEP --launch NAME ...
"""

import sys
import tempfile
from pathlib import Path

from support.worker_processes import PRELOAD, QUICK

from rlzoo_plus.store.contract import open_store
from rlzoo_plus.store.submissions import split_sweep_url
from rlzoo_plus.sweeps.launchers.local import LocalLauncher
from rlzoo_plus.testing import jobs
from rlzoo_plus.workers.host import find_host
from rlzoo_plus.workers.task import Rules
from rlzoo_plus.workers.worker_loop import Worker


def work(folder, place, words):
    """Work as a job of Batch does."""
    url, sweep = split_sweep_url(place)
    store = open_store(url)
    launch = words[words.index("--launch") + 1]
    targets = [f"{jobs.__name__}:{name}" for name in vars(jobs)]
    worker = Worker(
        store,
        sweep,
        # An attempt finds nothing of another one.
        Path(tempfile.mkdtemp(dir=folder)),
        LocalLauncher(1, PRELOAD),
        rules=Rules(trust=True, targets=targets),
        times=QUICK,
        host=find_host(store, sweep, launch=launch, spot=False, usd_per_hour=None),
    )
    return worker.run()


if __name__ == "__main__":
    sys.exit(work(sys.argv[1], sys.argv[2], sys.argv[3:]))
