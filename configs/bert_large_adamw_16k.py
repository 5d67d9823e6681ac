"""BERT-Large with AdamW, batch 16,384, to be tuned and set beside LAMB (bert_large_16k.py).

Command:
    bert-lamb pretrain --config=configs/bert_large_adamw_16k.py --workdir=DIR \
        --config.phases[0].records=RECORDS/seq128/train \
        --config.phases[1].records=RECORDS/seq512/train

Hardware: 512 TPU v3 chips, as for LAMB. Published: SQuAD v1.1 F1 88.540 for the best of nine
settings, three of which diverge (You et al., arXiv 1904.00962); no time. Predicted time: see
docs/recipe.md. Nothing of this size has been run here.

Published: batch, steps. Stand-ins: all rates, since which settings the nine were is in no source
found. Here the baseline's learning rate is scaled with the square root of the batch, and the
warm-up is LAMB's. Nado et al. (arXiv 2102.06356) tune Adam until it matches LAMB, so tune this one
too: --config.phases[0].peak_lr and [1].peak_lr (one schedule runs through both), warmup_steps of
both, --config.optimizer.b1, b2, eps, weight_decay.
"""

import ml_collections

from bert_lamb import recipes


def get_config() -> ml_collections.ConfigDict:
    return recipes.one_batch(16_384, base_rate=1e-4, optimizer={"name": "adamw"})
