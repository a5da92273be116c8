"""A folder of preferences: clips, a folder for each time they were recorded, and the answers.

Answers are JSON lines that are only appended to, so no kill loses one that was acknowledged.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from rlzoo_plus.artifacts.records import append_records, iter_records
from rlzoo_plus.artifacts.untrusted import open_plain, printable
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.preferences.clips import Clips, read_clips
from rlzoo_plus.preferences.reward_inputs import RewardInputs

log = logging.getLogger(__name__)
LEFT, RIGHT, EQUAL, SKIP = ANSWERS = ("left", "right", "equal", "skip")
ANSWER_FILE, _CLIPS, _MOST_ROUNDS = "answers.jsonl", "clips-{:03d}", 999


class Preferences:
    """What is in a folder.

    Attributes:
        rounds: The clips of each time, oldest first.
        given: The answer by the digest of its clips and the number of its pair; the last counts.
    """

    def __init__(self, folder: Path) -> None:
        """Read a folder, which may not exist yet.

        Raises:
            ConfigError: It holds something else, or its clips are damaged or of several tasks.
        """
        self.folder = folder
        self.rounds: list[Clips] = []
        self.given: dict[tuple[str, int], str] = {}
        while (one := folder / _CLIPS.format(len(self.rounds) + 1)).exists():
            self.rounds.append(read_clips(one))
        if not self.rounds and folder.exists() and not (folder.is_dir() and not os.listdir(folder)):
            raise ConfigError(f"{printable(folder)} holds no preferences. Name a new folder.")
        for clips in self.rounds:
            self.require_task(clips.about.get("env", ""), clips.inputs)
        sizes = {clips.digest: len(clips.pairs) for clips in self.rounds}
        n_unknown = 0
        for row in iter_records(folder / ANSWER_FILE):
            digest, pair, answer = row.get("clips"), row.get("pair"), row.get("answer")
            n_pairs = sizes.get(digest, 0) if isinstance(digest, str) else 0
            if type(pair) is int and 0 <= pair < n_pairs and answer in ANSWERS:
                self.given[str(digest), pair] = str(answer)
            else:
                n_unknown += 1
        if n_unknown:
            log.warning("%d answers in %s are about no pair there", n_unknown, printable(folder))

    def add(self, clips: Clips) -> Clips:
        """Write more clips; return them as they are read.

        Raises:
            ConfigError: They are of another task, or there are too many.
        """
        self.require_task(clips.about["env"], clips.inputs)
        if len(self.rounds) >= _MOST_ROUNDS:
            raise ConfigError(f"{printable(self.folder)} is full. Name a new folder.")
        self.rounds.append(clips.write(self.folder / _CLIPS.format(len(self.rounds) + 1)))
        return self.rounds[-1]

    def answer(self, clips: Clips, pair: int, answer: str, rater: str) -> None:
        """Write an answer durably.

        Raises:
            ValueError: There is no such pair or answer.
        """
        if type(pair) is not int or not 0 <= pair < len(clips.pairs) or answer not in ANSWERS:
            raise ValueError("there is no such pair or answer")
        path = self.folder / ANSWER_FILE
        row = {"clips": clips.digest, "pair": pair, "answer": answer, "rater": rater}
        append_records(path, [row])
        with open_plain(path) as file:
            os.fsync(file.fileno())
        self.given[clips.digest, pair] = answer

    def unanswered(self, clips: Clips) -> list[int]:
        """Return the pairs of clips without an answer."""
        return [n for n in range(len(clips.pairs)) if (clips.digest, n) not in self.given]

    def require_task(self, env_id: str, inputs: RewardInputs | None = None) -> None:
        """Refuse clips of another task than those that are there.

        Raises:
            ConfigError: They are.
        """
        for clips in self.rounds[:1]:
            before = clips.about.get("env")
            if before != env_id or inputs not in (None, clips.inputs):
                raise ConfigError(
                    f"{printable(self.folder)} holds clips of {printable(before)}, not of "
                    f"{printable(env_id)} or not with these spaces. Name another folder with --out."
                )
