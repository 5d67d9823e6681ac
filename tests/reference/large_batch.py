"""LAMB, its variants, LARS, LANS and AdamW in NumPy float64, one published tensor at a time.

Slow, plain and independent of optax. Written from algorithms 1 and 2 of You et al. (arXiv
1904.00962, version 5) and algorithm 2 of Zheng et al. (arXiv 2006.13484). Parameters and gradients
are flat dicts from a name to an array; stacked arrays are taken apart into their tensors first.
"""

import itertools

import numpy as np


def length(x):
    return float(np.sqrt((x * x).sum()))


class Optimizer:
    """Walks over the tensors; a subclass says in `direction` where each goes.

    After a step `ratios` holds the trust ratio of each tensor by (name, index in the stack).
    """

    def __init__(
        self,
        lr,
        b1=0.9,
        b2=0.999,
        eps=1e-6,
        weight_decay=0.0,
        *,
        decays=None,
        adapts=None,
        stacked=None,
        clip_norm=None,
        pre_normalize=False,
        bias_correction=True,
        nesterov="none",
        phi_bounds=(0.0, np.inf),
        ratio_bounds=(0.0, np.inf),
    ):
        self.lr = lr if callable(lr) else lambda t: lr  # of the update's number t = 1, 2, ...
        self.b1, self.b2, self.eps, self.weight_decay = b1, b2, eps, weight_decay
        self.decays, self.adapts, self.stacked = decays, adapts, stacked or {}
        self.clip_norm, self.pre_normalize = clip_norm, pre_normalize
        self.bias_correction, self.nesterov = bias_correction, nesterov
        self.phi_bounds, self.ratio_bounds = phi_bounds, ratio_bounds
        self.t = 0
        self.moments = {}
        self.ratios = {}

    def step(self, params, grads):
        """Applies one update and returns the new parameters."""
        self.t += 1
        params = {name: np.array(x, np.float64) for name, x in params.items()}
        grads = {name: np.array(g, np.float64) for name, g in grads.items()}
        norm = np.sqrt(sum(length(g) ** 2 for g in grads.values()))
        if self.pre_normalize and norm > 0:
            grads = {name: g / norm for name, g in grads.items()}
        if self.clip_norm is not None and norm > self.clip_norm:
            grads = {name: g * (self.clip_norm / norm) for name, g in grads.items()}
        for name, x in params.items():
            stack = x.shape[: self.stacked.get(name, 0)]
            for index in itertools.product(*map(range, stack)):
                key, wd = (name, index), self.weight_decay
                if self.decays is not None and name not in self.decays:
                    wd = 0.0
                change = self.direction(key, x[index], grads[name][index], wd)
                x[index] = x[index] - self.lr(self.t) * change
        return params

    def past(self, key, x):
        return self.moments.get(key, (np.zeros_like(x), np.zeros_like(x)))

    def adapted(self, key, x, u):
        ratio = 1.0
        if self.adapts is None or key[0] in self.adapts:
            x_norm, u_norm = length(x), length(u)
            if x_norm > 0 and u_norm > 0:
                phi = min(max(x_norm, self.phi_bounds[0]), self.phi_bounds[1])
                ratio = min(max(phi / u_norm, self.ratio_bounds[0]), self.ratio_bounds[1])
        self.ratios[key] = ratio
        return ratio * u

    def adam(self, key, x, g):
        """Advances both moments; returns them as they enter the direction."""
        b1, b2, t = self.b1, self.b2, self.t
        m, v = self.past(key, x)
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g * g
        self.moments[key] = (m, v)
        c1, c2, next1, next2 = 1 - b1**t, 1 - b2**t, 1 - b1 ** (t + 1), 1 - b2 ** (t + 1)
        if not self.bias_correction:
            c1 = c2 = next1 = next2 = 1.0
        m_hat, v_hat = m / c1, v / c2
        if self.nesterov in ("first", "both"):
            m_hat = b1 * m / next1 + (1 - b1) * g / c1
        if self.nesterov == "both":
            v_hat = b2 * v / next2 + (1 - b2) * g * g / c2
        return m_hat, v_hat


class Lamb(Optimizer):
    def direction(self, key, x, g, wd):
        m_hat, v_hat = self.adam(key, x, g)
        return self.adapted(key, x, m_hat / (np.sqrt(v_hat) + self.eps) + wd * x)


class AdamW(Optimizer):
    def direction(self, key, x, g, wd):
        m_hat, v_hat = self.adam(key, x, g)
        return m_hat / (np.sqrt(v_hat) + self.eps) + wd * x


class Lars(Optimizer):
    def direction(self, key, x, g, wd):
        m, _ = self.past(key, x)
        m = self.b1 * m + (1 - self.b1) * (g + wd * x)
        self.moments[key] = (m, None)
        return self.adapted(key, x, m)


class Lans(Optimizer):
    def direction(self, key, x, g, wd):
        norm = length(g)
        g = g / norm if norm > 0 else g
        m_hat, v_hat = self.adam(key, x, g)
        divisor = np.sqrt(v_hat) + self.eps
        along_gradient = self.adapted(key, x, g / divisor + wd * x)
        along_momentum = self.adapted(key, x, m_hat / divisor + wd * x)
        return self.b1 * along_momentum + (1 - self.b1) * along_gradient
