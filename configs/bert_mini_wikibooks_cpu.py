"""BERT-mini (4 layers, 256 wide) on Wikipedia and books, both phases, 2.5 hours on 2 cores.

Command:
    make measured-run WIKI=wiki.jsonl.xz BOOKS=books.jsonl.xz

Hardware: 2 CPU cores, no accelerator. The text: one shard of English Wikipedia (39 MB) and English
novels (36 MB); the last 2 % of the documents of each are held out. The run sees three quarters
of it, so no example comes twice and dropout is off.

Result: docs/results/bert_mini_wikibooks_cpu.
"""

import ml_collections

DATA = "runs/wikibooks-data"


def get_config() -> ml_collections.ConfigDict:
    return ml_collections.ConfigDict(
        {
            "seed": 0,
            "model": {
                "num_layers": 4,
                "hidden_size": 256,
                "num_heads": 4,
                "intermediate_size": 1024,
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
                    "steps": 4_300,
                    "max_predictions": 20,
                    "peak_lr": 1.2e-2,
                    "warmup_steps": 200,
                    "decay_power": 1.5,
                },
                {
                    "records": f"{DATA}/seq512/train",
                    "heldout": f"{DATA}/seq512/heldout",
                    "seq_length": 512,
                    "global_batch": 8,
                    "steps": 160,
                    "max_predictions": 77,
                    "peak_lr": 2e-3,
                    "warmup_steps": 25,
                    "carry": "weights",
                },
            ],
            "checkpoint": {"every_steps": 200, "keep": 2},
            "evaluation": {"every_steps": 500, "batch": 32, "max_examples": 512},
            "logging": {"every_steps": 10, "tensorboard": True},
        }
    )
