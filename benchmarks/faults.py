"""How often `rlzoo-plus doctor --learn` names the right cause first, and how often a wrong one.

`python -m benchmarks.faults` plants 40 faults and probes 40 sound environments. `--only LIST` runs
faults, healthy or further (25 other faults), `--match TEXT` those whose command or cause
has the text.
"""

from __future__ import annotations

import argparse
import time

from benchmarks.planted_faults import FAULTS, FURTHER, HEALTHY, Fault
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.doctor.not_learning import why_not
from rlzoo_plus.runs.load import load


def config_of(fault: Fault) -> RunConfig:
    """Return the configuration of a fault."""
    config = load(fault.command.split())
    if fault.wrapper is None:
        return config
    name, kwargs = fault.wrapper
    return config.model_copy(
        update={"env": config.env.model_copy(update={"wrappers": [{name: kwargs}]})}
    )


def main() -> None:
    """Print a row for each fault and each sound environment, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=["faults", "healthy", "further"])
    parser.add_argument("--match", default="", metavar="TEXT")
    options = parser.parse_args()
    planted = {"healthy": [], "further": FURTHER}.get(options.only, FAULTS)
    rows = [(fault.cause, fault) for fault in planted]
    if options.only in (None, "healthy"):
        rows += [("", Fault("", command)) for command in HEALTHY]
    counts = {"right": 0, "faults": 0, "alarms": 0, "healthy": 0}
    for cause, fault in rows:
        if options.match not in f"{cause} {fault.command}":
            continue
        started = time.monotonic()
        causes = why_not(config_of(fault))
        found = [f"({one.name})" if one.is_hint else one.name for one in causes]
        first = next((one.name for one in causes if not one.is_hint), "")
        is_right = first == cause
        counts["faults" if cause else "healthy"] += 1
        counts["right"] += bool(cause) and is_right
        counts["alarms"] += not cause and not is_right
        label = cause or "healthy"
        mark = "ok" if is_right else "WRONG"
        spent = f"{time.monotonic() - started:5.1f} s"
        print(f"{mark:5} {label:22} {spent}  {fault.command}  {', '.join(found)}", flush=True)
    print(
        f"right cause first: {counts['right']} of {counts['faults']}; "
        f"alarms on sound environments: {counts['alarms']} of {counts['healthy']}"
    )


if __name__ == "__main__":
    main()
