"""`rlzoo-plus worker` with quick times and a server that fails: URL/SWEEP FOLDER SEED."""

import sys

from support.stores import fail_requests

from rlzoo_plus.commands.dispatch import run
from rlzoo_plus.store.s3 import S3Store
from rlzoo_plus.workers import worker_loop as worker

SHARE, EXPIRES_S = 0.3, 8.0


def main(url, folder, seed):
    """Work as the command does."""
    make = S3Store.__init__

    def make_failing(self, url):
        make(self, url)
        fail_requests(self, SHARE, seed)

    S3Store.__init__ = make_failing
    times = worker.Times(1.0, 1.5, 1.0, EXPIRES_S)
    worker.Times = lambda: times
    return run("worker", [url, "--slots", "1", "--dir", folder])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
