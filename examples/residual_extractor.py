"""A features extractor of one's own: residual blocks over a flat observation.

Use, from this folder:

    rlzoo-plus train network.features_extractor=residual_extractor.ResidualExtractor \
        '+network.features_extractor_kwargs={width: 64, blocks: 2}'

Anything that inherits from Stable-Baselines3's `BaseFeaturesExtractor` will do: its constructor
takes the observation space, and the rest of its arguments from the configuration.
"""

import torch
from gymnasium import spaces
from stable_baselines3.common.preprocessing import get_flattened_obs_dim
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn


class ResidualExtractor(BaseFeaturesExtractor):
    """Layers that each add to what came in (He et al. 2016), for deep networks on plain numbers."""

    def __init__(self, observation_space: spaces.Space, width: int = 64, blocks: int = 2) -> None:
        """Build the layers.

        Args:
            observation_space: A box of numbers.
            width: Size of every layer, and of the features.
            blocks: How many residual blocks.
        """
        super().__init__(observation_space, features_dim=width)
        self.first = nn.Sequential(
            nn.Flatten(), nn.Linear(get_flattened_obs_dim(observation_space), width)
        )
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.ReLU())
            for _ in range(blocks)
        )

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Return features, shape (batch, width)."""
        features = self.first(observations)
        for block in self.blocks:
            features = features + block(features)
        return features
