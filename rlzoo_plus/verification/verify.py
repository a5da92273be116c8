"""The verdict on one configuration: trained whole, then killed and resumed, then compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.verification.digests import run_digests
from rlzoo_plus.verification.trial import (
    checkpoint_cadence,
    train_through,
    train_with_kills,
    warm_up,
    with_checkpoints,
)

_MOST_ROUNDS = 40


@dataclass(frozen=True)
class Verdict:
    """What came out.

    Attributes:
        expected: Hashes of the parts of the run that was never stopped.
        found: Those of a run that was; of the first that differs, otherwise of the last.
        kills: Times a process was killed, over all runs.
        while_writing: Times among them at which a checkpoint was being written.
        inexact_because: Why the run itself says that it may differ.
    """

    expected: dict[str, str]
    found: dict[str, str]
    kills: int
    while_writing: int
    inexact_because: list[str]

    @property
    def is_identical(self) -> bool:
        """Whether every part is the same."""
        return self.expected == self.found

    def table(self) -> str:
        """Return the parts of both runs side by side."""
        width = max(len(name) for name in self.expected)
        rows = [f"{'part':<{width}}  {'never stopped':<16}  {'killed':<16}"]
        for name in dict.fromkeys([*self.expected, *self.found]):
            left, right = self.expected.get(name, "-"), self.found.get(name, "-")
            word = "same" if left == right else "DIFFERENT"
            rows.append(f"{name:<{width}}  {left:<16}  {right:<16}  {word}")
        return "\n".join(rows)


def verify(
    config: RunConfig,
    folder: Path,
    *,
    kills: int,
    every_steps: int | None = None,
    seed: int = 0,
    say: Callable[[str], None] = print,
) -> Verdict:
    """Train a run once without a checkpoint, then killed and resumed, until it was killed enough.

    Args:
        config: The run, short; see `shortened`.
        folder: Where the runs go.
        kills: Times to kill.
        every_steps: Steps between checkpoints; None for some in a run.
        seed: Decides the instants.
        say: Reports what happens.

    Raises:
        TrialFailedError: A training ended with an error of its own.
    """
    warm_up()
    usual_s = train_through(with_checkpoints(config, None), folder / "whole")
    expected = found = run_digests(RunDir(folder / "whole"))
    say(f"trained in {sum(usual_s):.1f} s without interruption")
    every = every_steps or checkpoint_cadence(config)
    total, writing, number, reasons = 0, 0, 0, list[str]()
    while total < kills and number < _MOST_ROUNDS and found == expected:
        path, number = folder / f"killed-{number}", number + 1
        done = train_with_kills(
            with_checkpoints(config, every), path, kills - total, usual_s, seed + number
        )
        total, writing = total + done.total, writing + done.while_writing
        found = run_digests(RunDir(path))
        reasons += RunDir(path).read_result()["inexact_because"]
        # A run that was over before its last kill is tried again, with shorter waits.
        usual_s = (usual_s[0], 0.7 * usual_s[1])
    say(
        f"killed {total} times in {number} runs, {writing} of them while a checkpoint was being "
        f"written (one each {every:,} steps)"
    )
    return Verdict(expected, found, total, writing, list(dict.fromkeys(reasons)))
