"""BERT-Large in NVIDIA's 7,038 + 1,563 steps: 65,536 x 128, then 32,768 x 512.

Command:
    bert-lamb pretrain --config=configs/bert_large_nvidia_64k_32k.py --workdir=DIR \
        --config.phases[0].records=RECORDS/seq128/train \
        --config.phases[1].records=RECORDS/seq512/train

Hardware: GPUs in NVIDIA's case; the file is laid out for 1,024 TPU v3 chips like the paper's run.
Published: SQuAD v1.1 F1 90.96 (ten seeds: 90.68 +- 0.16), loss 1.2437. Predicted time: see
docs/recipe.md. Nothing of this size has been run here.

Published, in NVIDIA's PyTorch code: batches, steps, learning rates, warm-ups, square root decay
counted from step 0, and Apex's LAMB, which divides the gradient by its norm where that is above 1
and adapts what decays. --config.optimizer.variant=nvlamb adapts all tensors. Stand-in: NVIDIA's
second phase keeps the moments and forgets their count, which inflates them; here it keeps both.
"""

import ml_collections

from bert_lamb import recipes


def get_config() -> ml_collections.ConfigDict:
    return recipes.mixed_batch(
        chips=1_024,
        steps=(7_038, 1_563),
        carry="weights_and_moments",
        optimizer={"variant": "apex"},
    )
