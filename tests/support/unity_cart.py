"""A task as a build of Unity runs it: carts on a line that must reach the middle.

Plain Python from 3.8 on, without random numbers but those of a seed that is given once.
"""

import random


class Cart:
    """An agent: where it is, how fast, and since when."""

    def __init__(self, agent, draw):
        self.agent, self.steps, self.reward = agent, 0, 0.0
        self.place, self.speed = draw.uniform(-1, 1), 0.0
        self.ended = self.cut = False

    def see(self):
        return [self.place, self.speed]


class Carts:
    """A scene of `count` carts; an end frees a number, and `gap` steps later another comes.

    Every decision takes one step, and agents are interrupted after `length` to `length` + 2.
    `slow` carts ask only in every second step.
    """

    def __init__(self, count=3, seed=0, length=12, gap=0, slow=0):
        self.draw = random.Random(seed)
        self.count, self.length, self.gap, self.slow = count, length, gap, slow
        self.agents, self.step_number = 0, 0
        self.waiting, self.carts = [], []
        self.reset()

    def reset(self):
        self.waiting, self.carts = [], [self.born() for _ in range(self.count)]
        self.ended = []

    def born(self):
        self.agents += 1
        return Cart(self.agents - 1, self.draw)

    def asking(self):
        """Return the carts that want an action now."""
        late = self.step_number % 2
        return [c for at, c in enumerate(self.carts) if not (at < self.slow and late)]

    def act(self, actions):
        """Take a number for each cart that asked, and go on for a step."""
        for cart in self.carts:
            cart.reward = 0.0
        pushes = dict(zip([id(cart) for cart in self.asking()], actions))  # noqa: B905
        self.step_number += 1
        self.ended = []
        for cart in list(self.carts):
            cart.steps += 1
            push = max(-1.0, min(1.0, pushes.get(id(cart), 0.0)))
            cart.speed = 0.8 * cart.speed + 0.2 * push
            cart.place += cart.speed + self.draw.uniform(-0.01, 0.01)
            cart.reward = -abs(cart.place)
            cart.ended = abs(cart.place) < 0.05 or abs(cart.place) > 3
            cart.cut = not cart.ended and cart.steps >= self.length + cart.agent % 3
            if cart.ended or cart.cut:
                self.carts.remove(cart)
                self.ended.append(cart)
                self.waiting.append(self.step_number + self.gap)
        while self.waiting and self.waiting[0] <= self.step_number:
            self.waiting.pop(0)
            self.carts.append(self.born())
