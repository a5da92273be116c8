"""What processes that train share: imported once, in the fork server that they come from."""

import contextlib
import gc

from robots.quiet import native_output_hidden

with native_output_hidden():
    import sb3_contrib  # noqa: F401
    import torch.utils.tensorboard  # noqa: F401

    import rlzoo_plus.runs.train_job
    import rlzoo_plus.training.exp_manager  # noqa: F401

    with contextlib.suppress(ImportError):
        import pybullet  # noqa: F401

# They never collect it, so its pages stay shared.
gc.freeze()
