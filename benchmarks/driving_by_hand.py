"""A controller made by hand that drives the Husky between posts: it plays demonstrations."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from robots.avoiding import N_RAYS, RADIUS_M, RANGE_M

Floats = NDArray[np.float64]
# Distance that a straight way keeps from the middle of a post [m]: half the robot's width, the post
# and a reserve.
_CLEAR_M = 0.72
_RAYS = np.linspace(-np.pi, np.pi, N_RAYS, endpoint=False)
_HEADINGS = np.linspace(-np.pi, np.pi, 48, endpoint=False)
_LENGTHS_M = np.array([0.6, 1.0, 1.5, 2.0, 2.6, 3.2])
# What the action changes by at most in a step.
_RATE = 0.3


def drive_between_posts(observation: np.ndarray) -> np.ndarray:
    """Return the action for `husky_avoid`: by way of one point around the posts to the goal."""
    x, y = _next_point(observation)
    angle, ahead = np.arctan2(y, x), 1.0
    if abs(angle) > np.pi / 2:  # backwards is as good
        angle, ahead = angle - np.sign(angle) * np.pi, -1.0
    speed = ahead * np.clip(1.4 - 1.6 * abs(angle), 0.0, 1.0)
    wanted = np.array([speed, np.clip(2.5 * angle, -1.0, 1.0)])
    last = observation[6:8]
    return np.asarray(last + np.clip(wanted - last, -_RATE, _RATE))


def _next_point(observation: np.ndarray) -> Floats:
    """Return where to drive now, in the robot's frame [m]: the cheapest point on a way of two."""
    goal: Floats = observation[0] * observation[1:3].astype(float)
    nearness = observation[8:]
    seen = nearness > 0.005
    distances = (1.0 - nearness[seen]) * RANGE_M + RADIUS_M
    posts = distances[:, None] * np.stack([np.cos(_RAYS[seen]), np.sin(_RAYS[seen])], axis=1)
    here = np.zeros((1, 2))
    if not len(posts) or _clearance(posts, here, goal[None])[0] > _CLEAR_M:
        return goal
    straight = np.arctan2(goal[1], goal[0])
    headings = np.append(_HEADINGS, straight)
    units = np.stack([np.cos(headings), np.sin(headings)], axis=1)
    points = (units[:, None] * _LENGTHS_M[:, None]).reshape(-1, 2)
    turns = np.repeat(np.minimum(abs(headings), np.pi - abs(headings)), len(_LENGTHS_M))
    lengths = np.hypot(*points.T) + np.hypot(*(goal - points).T)
    close = [
        np.maximum(0.0, 1.0 - _clearance(posts, *ends) / _CLEAR_M)
        for ends in ((here, points), (points, goal[None]))
    ]
    cost = lengths + 0.25 * turns + 12.0 * close[0] + 4.0 * close[1]
    return points[int(np.argmin(cost))]


def _clearance(posts: Floats, start: Floats, end: Floats) -> Floats:
    """Return the least distance of posts from each of some straight ways.

    Args:
        posts: Shape (posts, 2) [m].
        start: Where the ways begin, shape (ways or 1, 2).
        end: Where they end, likewise.
    """
    way = end - start
    along = ((posts[:, None] - start) * way).sum(-1) / np.maximum((way * way).sum(-1), 1e-9)
    nearest = start + np.clip(along, 0.0, 1.0)[..., None] * way
    found: Floats = np.hypot(*np.moveaxis(posts[:, None] - nearest, -1, 0)).min(axis=0)
    return found
