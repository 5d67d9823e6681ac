"""LAMB in PyTorch, one published tensor at a time, as the benchmark's other side."""

import math

import torch


class TorchLamb:
    """Updates parameters in place; `step` is what `torch.compile` can take."""

    def __init__(self, params, adapts, lr=1e-3, b1=0.9, b2=0.999, eps=1e-6, weight_decay=0.01):
        self.params, self.adapts, self.lr = params, adapts, lr
        self.b1, self.b2, self.eps, self.weight_decay = b1, b2, eps, weight_decay
        self.mu = [torch.zeros_like(x) for x in params]
        self.nu = [torch.zeros_like(x) for x in params]
        self.count = 0
        self.compute = self._compute

    def compile(self):
        torch._dynamo.config.recompile_limit = 64  # one program per shape of tensor
        self.compute = torch.compile(self._compute, dynamic=False)
        return self

    @torch.no_grad()
    def step(self, grads, max_norm=1.0):
        self.count += 1
        c1, c2 = (-math.expm1(self.count * math.log(b)) for b in (self.b1, self.b2))
        norm = torch.sqrt(sum(torch.linalg.vector_norm(g) ** 2 for g in grads))
        scale = max_norm / torch.clamp(norm, min=max_norm)
        inverse = torch.tensor([1 / c1, 1 / c2])
        for x, g, m, v, adapts in zip(
            self.params, grads, self.mu, self.nu, self.adapts, strict=True
        ):
            self.compute(x, g, m, v, scale, inverse, adapts)

    def _compute(self, x, g, m, v, scale, inverse, adapts):
        g = g * scale
        m.mul_(self.b1).add_(g, alpha=1 - self.b1)
        v.mul_(self.b2).addcmul_(g, g, value=1 - self.b2)
        u = (m * inverse[0]) / (torch.sqrt(v * inverse[1]) + self.eps)
        if not adapts:
            x.sub_(self.lr * u)
            return
        u = u + self.weight_decay * x
        x_norm, u_norm = torch.linalg.vector_norm(x), torch.linalg.vector_norm(u)
        ratio = torch.where((x_norm > 0) & (u_norm > 0), x_norm / u_norm, 1.0)
        x.sub_(self.lr * ratio * u)
