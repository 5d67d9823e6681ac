"""Large-batch optimizers as optax transforms; imports nothing beyond jax and optax."""

from bert_lamb.optim.adamw import adamw
from bert_lamb.optim.clipping import (
    assign_buckets,
    clip_by_bucket,
    clip_by_global_norm,
    clip_per_tensor,
)
from bert_lamb.optim.lamb import LambState, lamb, scale_by_lamb
from bert_lamb.optim.lans import LansState, lans, scale_by_lans
from bert_lamb.optim.lars import lars
from bert_lamb.optim.masks import (
    DEFAULT_EXCLUDE,
    EXCLUDE,
    assign_by_path,
    leaf_paths,
    path_mask,
)
from bert_lamb.optim.master_weights import MasterWeightsState, with_master_weights
from bert_lamb.optim.moments import scale_by_moments
from bert_lamb.optim.normalizing import normalize_by_global_norm, normalize_per_tensor
from bert_lamb.optim.norms import global_norm
from bert_lamb.optim.scaling import Recipe, linear_epoch_warmup, sqrt_scaled, untuned_lamb
from bert_lamb.optim.schedules import (
    join_phases,
    mlperf_warmup_decay,
    warmup_constant_decay,
    warmup_polynomial_decay,
    warmup_token_decay,
)
from bert_lamb.optim.sharding import state_specs
from bert_lamb.optim.skipping import (
    Skipped,
    SkipState,
    raise_if_stuck,
    skip_nonfinite,
)
from bert_lamb.optim.stacking import stacked_by_metadata
from bert_lamb.optim.table import mask_table
from bert_lamb.optim.trust_ratio import (
    Adaptation,
    TrustRatioState,
    scale_by_trust_ratio,
    trust_ratio,
    trust_ratios,
)
from bert_lamb.optim.unused import warn_of_unused

__all__ = [
    "DEFAULT_EXCLUDE",
    "EXCLUDE",
    "Adaptation",
    "LambState",
    "LansState",
    "MasterWeightsState",
    "Recipe",
    "SkipState",
    "Skipped",
    "TrustRatioState",
    "adamw",
    "assign_buckets",
    "assign_by_path",
    "clip_by_bucket",
    "clip_by_global_norm",
    "clip_per_tensor",
    "global_norm",
    "join_phases",
    "lamb",
    "lans",
    "lars",
    "leaf_paths",
    "linear_epoch_warmup",
    "mask_table",
    "mlperf_warmup_decay",
    "normalize_by_global_norm",
    "normalize_per_tensor",
    "path_mask",
    "raise_if_stuck",
    "scale_by_lamb",
    "scale_by_lans",
    "scale_by_moments",
    "scale_by_trust_ratio",
    "skip_nonfinite",
    "sqrt_scaled",
    "stacked_by_metadata",
    "state_specs",
    "trust_ratio",
    "trust_ratios",
    "untuned_lamb",
    "warmup_constant_decay",
    "warmup_polynomial_decay",
    "warmup_token_decay",
    "warn_of_unused",
    "with_master_weights",
]
