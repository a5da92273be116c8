"""`python -m rlzoo_plus <verb>` is the same as `rlzoo-plus <verb>`."""

from rlzoo_plus.commands.dispatch import entry_point

if __name__ == "__main__":
    entry_point()
