"""What processes that train share: imported once, in the fork server that they come from."""

import contextlib
import gc

from rlzoo_plus.accelerators import load_fast_math
from rlzoo_plus.errors import ConfigError
from robots.quiet import native_output_hidden

# Jobs may set it: before PyTorch is imported, and only where some run has asked for it.
with contextlib.suppress(ConfigError):
    load_fast_math()

with native_output_hidden():
    import sb3_contrib  # noqa: F401
    import torch.utils.tensorboard  # noqa: F401

    import rlzoo_plus.runs.train_job
    import rlzoo_plus.training.exp_manager  # noqa: F401

    with contextlib.suppress(ImportError):
        import pybullet  # noqa: F401

# They never collect it, so its pages stay shared.
gc.freeze()
