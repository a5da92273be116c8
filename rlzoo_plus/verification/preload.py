"""What the processes of a trial share: imported once, in the server that they are forked from."""

from rlzoo_plus.envs.quiet import native_output_hidden

with native_output_hidden():
    import pybullet  # noqa: F401
    import sb3_contrib  # noqa: F401
    import torch.utils.tensorboard  # noqa: F401

    import rlzoo_plus.exp_manager  # noqa: F401
