"""What processes that train share: imported once, in the fork server that they come from."""

import gc

from robots.quiet import native_output_hidden

with native_output_hidden():
    import pybullet  # noqa: F401
    import sb3_contrib  # noqa: F401
    import torch.utils.tensorboard  # noqa: F401

    import rlzoo_plus.runs.exp_manager
    import rlzoo_plus.runs.job  # noqa: F401

# They never collect it, so its pages stay shared.
gc.freeze()
