"""The demo: a tiny BERT (2 layers, 128 wide) in two phases on 2 CPU cores, about four minutes.

Command:
    make demo        (which runs scripts/demo.sh)

Hardware: 2 CPU cores. What it reaches is what the demo prints; it shows the way, not a result.
"""

import ml_collections

DATA = "runs/demo-data"


def get_config() -> ml_collections.ConfigDict:
    return ml_collections.ConfigDict(
        {
            "seed": 0,
            "model": {
                "num_layers": 2,
                "hidden_size": 128,
                "num_heads": 2,
                "intermediate_size": 512,
                # One pass over little text: nothing to regularize, and the step is faster.
                "hidden_dropout": 0.0,
                "attention_dropout": 0.0,
                "activation": "gelu_tanh",
            },
            "optimizer": {"weight_decay": 0.01, "clip_norm": 1.0},
            "phases": [
                {
                    "records": f"{DATA}/seq128/train",
                    "heldout": f"{DATA}/seq128/heldout",
                    "seq_length": 128,
                    "global_batch": 32,
                    "steps": 260,
                    "max_predictions": 20,
                    "peak_lr": 1e-2,
                    "warmup_steps": 40,
                },
                {
                    "records": f"{DATA}/seq512/train",
                    "heldout": f"{DATA}/seq512/heldout",
                    "seq_length": 512,
                    "global_batch": 8,
                    "steps": 26,
                    "max_predictions": 77,
                    "peak_lr": 4e-3,
                    "warmup_steps": 6,
                    "carry": "weights",
                },
            ],
            "checkpoint": {"every_steps": 120, "keep": 2},
            "evaluation": {"every_steps": 0, "batch": 32, "max_examples": 320},
            "logging": {"every_steps": 10, "tensorboard": True},
        }
    )
