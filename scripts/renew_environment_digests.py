"""Renew tests/envs/environment_digests.json: what each shipped environment does in 200 steps.

And environment_versions.json beside it: hashes of the code that decides what each robot does.

An environment that behaves otherwise needs a new version in its id, so that results under one id
can be compared; this refuses to replace the numbers of an id that is there already.

`--changed robots/HalfCheetah-v0` replaces them all the same, for the repair of a defect, or for
code that was written otherwise and does the same.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))


def main() -> int:
    """Renew the file; return 1 if an environment has changed under its old id."""
    from support import environment_digests as digests
    from support.environment_digests import digest, explain, load, names, save

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--changed", action="append", default=[], metavar="ID")
    allowed = parser.parse_args().changed
    stored, found, refused = load(), {}, []
    for name in names():
        found[name] = now = digest(name)
        problem = explain(name, stored[name], now) if name in stored else None
        is_update = name in stored and stored[name]["package"] != now["package"]
        if problem is None and name in stored and not is_update:
            found[name] = stored[name]  # equal but for last bits: no noise in the file
        elif problem and not is_update and name.split(" ")[0] not in allowed:
            refused.append(problem)
            found[name] = stored[name]
        else:
            print(f"{'renewed' if name in stored else 'new'}: {name}")
    save(found)
    before, now = load(digests.VERSIONS), digests.versions()
    kept = {robot for robot in before.keys() & now.keys() if robot not in allowed}
    refused += digests.renamed({r: before[r] for r in kept}, {r: now[r] for r in kept})
    save(now | {robot: before[robot] for robot in kept}, digests.VERSIONS)
    for problem in refused:
        print(f"refused: {problem}", file=sys.stderr)
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
