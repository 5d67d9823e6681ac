"""Large-batch optimizers as optax transforms; imports nothing beyond jax and optax."""

from bert_lamb.optim.clipping import clip_by_global_norm
from bert_lamb.optim.lamb import lamb
from bert_lamb.optim.masks import DEFAULT_EXCLUDE, leaf_paths, mask_table, path_mask
from bert_lamb.optim.norms import global_norm
from bert_lamb.optim.schedules import warmup_polynomial_decay
from bert_lamb.optim.trust_ratio import scale_by_trust_ratio, trust_ratio

__all__ = [
    "DEFAULT_EXCLUDE",
    "clip_by_global_norm",
    "global_norm",
    "lamb",
    "leaf_paths",
    "mask_table",
    "path_mask",
    "scale_by_trust_ratio",
    "trust_ratio",
    "warmup_polynomial_decay",
]
