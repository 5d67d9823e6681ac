"""LAMB in NumPy float64, one published tensor at a time: slow, plain and independent of optax.

Written from algorithm 2 of You et al., arXiv 1904.00962 (version 5). Parameters and gradients are
flat dicts from a name to an array; stacked arrays are taken apart into their tensors first.
"""

import dataclasses
import itertools

import numpy as np


@dataclasses.dataclass
class Moments:
    """What LAMB remembers of one published tensor."""

    m: np.ndarray
    v: np.ndarray


class Lamb:
    """Reference implementation; `step` returns the new parameters and keeps the moments."""

    def __init__(
        self,
        lr,
        b1=0.9,
        b2=0.999,
        eps=1e-6,
        weight_decay=0.0,
        decays=None,
        adapts=None,
        stacked=None,
        clip_norm=None,
    ):
        self.lr = lr if callable(lr) else lambda t: lr  # of the update's number t = 1, 2, ...
        self.b1, self.b2, self.eps, self.weight_decay = b1, b2, eps, weight_decay
        self.decays, self.adapts, self.stacked = decays, adapts, stacked or {}
        self.clip_norm = clip_norm
        self.t = 0
        self.moments: dict[tuple, Moments] = {}
        self.ratios: dict[tuple, float] = {}

    def step(self, params, grads):
        """Applies one update; `ratios` then holds each tensor's trust ratio."""
        self.t += 1
        params = {name: np.array(x, np.float64) for name, x in params.items()}
        grads = {name: np.array(g, np.float64) for name, g in grads.items()}
        if self.clip_norm is not None:
            norm = sum(float(np.vdot(g, g)) for g in grads.values()) ** 0.5
            if norm > self.clip_norm:
                grads = {name: g * (self.clip_norm / norm) for name, g in grads.items()}
        for name, x in params.items():
            stack = x.shape[: self.stacked.get(name, 0)]
            for index in itertools.product(*map(range, stack)):
                x[index] = self._tensor(name, index, x[index], grads[name][index])
        return params

    def _tensor(self, name, index, x, g):
        past = self.moments.get((name, index), Moments(np.zeros_like(x), np.zeros_like(x)))
        m = self.b1 * past.m + (1 - self.b1) * g
        v = self.b2 * past.v + (1 - self.b2) * g * g
        self.moments[name, index] = Moments(m, v)
        m_hat = m / (1 - self.b1**self.t)
        v_hat = v / (1 - self.b2**self.t)
        u = m_hat / (np.sqrt(v_hat) + self.eps)
        if self.decays is None or name in self.decays:
            u = u + self.weight_decay * x
        ratio = 1.0
        if self.adapts is None or name in self.adapts:
            x_norm, u_norm = np.sqrt((x * x).sum()), np.sqrt((u * u).sum())
            if x_norm > 0 and u_norm > 0:
                ratio = float(x_norm / u_norm)
        self.ratios[name, index] = ratio
        return x - self.lr(self.t) * ratio * u
