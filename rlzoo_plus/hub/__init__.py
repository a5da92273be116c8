"""Policies on the Hugging Face Hub: sent with a card, found, and brought as data, never as code.

Optional: `commands/hub.py` and the scheme `hf://` of `analysis/find_run.py` lead here, and nothing
else does. A repository is laid out like a run directory (`repository.py`), without a pickle. What
comes from the Hub is somebody else's: names, sizes and hashes are checked before anything is kept.
"""

from importlib.util import find_spec

from rlzoo_plus.errors import ConfigError

if find_spec("huggingface_hub") is None:
    raise ConfigError("the Hub needs huggingface_hub. Install it: pip install 'rlzoo_plus[hub]'.")
