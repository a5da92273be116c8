"""The worker of a job of `support.fake_batch`, with short times, that calls the suite's functions.

Use: python -m support.batch_worker FOLDER STORE/SWEEP --launch NAME ...
"""

import sys
import tempfile

from support.worker_processes import work

from rlzoo_plus.store.contract import open_store
from rlzoo_plus.store.submissions import split_sweep_url
from rlzoo_plus.workers.host import find_host
from rlzoo_plus.workers.worker_loop import Wait


def work_in_batch(folder, place, words):
    """Work as a job of Batch does; an attempt finds nothing of another one."""
    url, sweep = split_sweep_url(place)
    host = find_host(open_store(url), sweep, launch=words[words.index("--launch") + 1])
    return work(url, sweep, tempfile.mkdtemp(dir=folder), "1", host=host, wait=Wait.OTHERS)


if __name__ == "__main__":
    sys.exit(work_in_batch(sys.argv[1], sys.argv[2], sys.argv[3:]))
