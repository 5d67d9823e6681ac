"""BERT-Large with LANS, batch 98,304 x 128, then 33,792 x 512 (Zheng et al., arXiv 2006.13484).

Command:
    bert-lamb pretrain --config=configs/bert_large_lans_96k_33k.py --workdir=DIR \
        --config.phases[0].records=RECORDS/seq128/train \
        --config.phases[1].records=RECORDS/seq512/train

Hardware of the paper: 192 P3dn.24xlarge machines with 8 GPUs each; the file is laid out for 512 TPU
v3 chips, whose cores divide both batches. Published: 54 min, SQuAD v1.1 F1 90.5 or higher.
Predicted time: see docs/recipe.md. Nothing of this size has been run here.

Published: batches of 96K and 33K, a schedule of warm-up, constant rate and linear decay. Recalled
and unconfirmed: steps, learning rates, and the shares of warm-up (.4265, .192) and of constant rate
(.2735, .108). Stand-ins: weight decay, b1, b2 and eps are LAMB's; moments start anew.
"""

import ml_collections

from bert_lamb import recipes


def get_config() -> ml_collections.ConfigDict:
    return recipes.run(
        (
            _stage(98_304, recipes.SHORT, 3_519, 6.75e-3, 0.4265, 0.2735),
            _stage(33_792, recipes.LONG, 782, 5e-3, 0.192, 0.108),
        ),
        chips=512,
        optimizer={"name": "lans"},
    )


def _stage(
    batch: int, tokens: int, steps: int, peak_lr: float, warmup: float, constant: float
) -> recipes.Stage:
    """Returns a phase whose warm-up and constant part are shares of its steps."""
    options = {"constant_steps": round(constant * steps)}
    return recipes.Stage(batch, tokens, steps, peak_lr, round(warmup * steps), options)
