"""What the verb `prefer` does: record clips, ask about pairs of them, fit a reward model."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from rlzoo_plus.artifacts.untrusted import LONGEST_LINE, printable
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.local_pages import HOST
from rlzoo_plus.preferences.clip_page import ClipServer
from rlzoo_plus.preferences.clip_recording import record_clips
from rlzoo_plus.preferences.clip_videos import ClipVideos
from rlzoo_plus.preferences.clips import MOST_CLIP_STEPS, MOST_PAIRS, Clips
from rlzoo_plus.preferences.preference_folder import SKIP, Preferences
from rlzoo_plus.preferences.raters import make_rater
from rlzoo_plus.preferences.reward_fitting import FEWEST, answers_of, fit
from rlzoo_plus.preferences.reward_model import MOST_MEMBERS, save_reward_model
from rlzoo_plus.runs.run import Run
from rlzoo_plus.training.evaluation import one_torch_thread

Tell = Callable[[str], None]


def fit_folder(folder: Path, out: Path, members: int, seed: int) -> str:
    """Fit a reward model to the answers in a folder, and write it; return a summary.

    Raises:
        ConfigError: There are too few answers, or the model cannot be written.
    """
    if members > MOST_MEMBERS:
        raise ConfigError(f"--members {members}: must be from 1 to {MOST_MEMBERS}.")
    with one_torch_thread():
        model = fit(Preferences(folder), members, seed)
    save_reward_model(out, model)
    told = [f"learned from {model.about['taught']} answers"]
    for name, text in (("answers", "held-out answers"), ("returns", "pairs by their true return")):
        if (share := model.about[f"accuracy_{name}"]) is not None:
            told.append(f"{100 * share:.1f}% of {model.about[f'held_out_{name}']} {text}")
    return f"{', '.join(told)}: {printable(out, LONGEST_LINE)}"


def ask(
    run: Run,
    folder: Path,
    *,
    which: str | None,
    n_pairs: int,
    clip_steps: int,
    seed: int,
    rater: str,
    port: int,
    tell: Tell,
) -> None:
    """Ask a rater about pairs of clips of a run, or a person until Ctrl-C.

    Clips are recorded, unless those of this run that were recorded last have pairs without an
    answer: then it goes on with them.

    Args:
        run: Its policies play.
        folder: For clips and answers; what is in it stays.
        which: The policy that plays; None for all.
        n_pairs: How many pairs.
        clip_steps: Steps of a clip, at most.
        seed: Chooses episodes and clips.
        rater: `person`, or a synthetic one.
        port: Of the page.
        tell: Prints a line.

    Raises:
        ConfigError: The folder holds something else, or an argument is wrong.
    """
    if n_pairs > MOST_PAIRS or clip_steps > MOST_CLIP_STEPS:
        most = f"--pairs {MOST_PAIRS} and --clip-steps {MOST_CLIP_STEPS}"
        raise ConfigError(f"--pairs {n_pairs} --clip-steps {clip_steps}: at most {most}.")
    synthetic = make_rater(rater)
    preferences = Preferences(folder)
    preferences.require_task(run.config.env.id)
    clips = preferences.rounds[-1] if preferences.rounds else None
    if (
        clips is None
        or clips.about.get("run") != str(run.path)
        or not preferences.unanswered(clips)
    ):
        clips = _recorded(run, preferences, which, n_pairs, clip_steps, seed, tell)
    left = preferences.unanswered(clips)
    if synthetic is not None:
        answers = synthetic.answers(clips)
        for pair in left:
            preferences.answer(clips, pair, answers[pair], rater)
    else:
        _serve(preferences, clips, run, port, tell)
    n_skipped = sum(answer == SKIP for answer in preferences.given.values())
    tell(
        f"{len(preferences.given)} pairs answered, {n_skipped} of them skipped: "
        f"{printable(folder, LONGEST_LINE)}"
    )


def _recorded(
    run: Run, preferences: Preferences, which: str | None, n_pairs: int, clip_steps: int, seed: int,
    tell: Tell,
) -> Clips:  # fmt: skip
    model = None
    with one_torch_thread():
        if len(answers_of(preferences)) >= FEWEST:
            tell("fits a reward model to earlier answers, to ask where it is unsure ...")
            model = fit(preferences, 3, seed)
        tell(f"plays episodes for {n_pairs} pairs of clips ...")
        own_seed = seed * 1000 + len(preferences.rounds)
        clips = record_clips(run, which, n_pairs, clip_steps, own_seed, model)
    return preferences.add(clips)


def _serve(preferences: Preferences, clips: Clips, run: Run, port: int, tell: Tell) -> None:
    with contextlib.closing(ClipVideos(preferences.folder / "videos", clips, run)) as videos:
        server = ClipServer(port, preferences, clips, videos)
        with server, contextlib.suppress(KeyboardInterrupt):
            # The port answers from here on.
            tell(f"http://{HOST}:{server.server_port}   (Ctrl-C ends it)")
            server.serve_forever()
