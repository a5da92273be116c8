"""`python train.py algo=ppo env=cartpole_bullet` is the same as `rlzoo-plus train ...`."""

# Hydra's shell completion of `python train.py` looks for the text @hydra.main in this file.
from rlzoo_plus.commands.dispatch import entry_point

if __name__ == "__main__":
    entry_point("train")
