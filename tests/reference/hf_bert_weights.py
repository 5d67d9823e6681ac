"""Hugging Face's BERT (PyTorch, eager) as an independent reference: its tensors as our tree."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import transformers

from bert_lamb.config import ModelConfig


def reference_model(
    config: ModelConfig, seed: int, kind: str = "BertForPreTraining", **more: Any
) -> transformers.BertPreTrainedModel:
    """Builds a model with every parameter random, biases and norms included; dropout off."""
    model = getattr(transformers, kind)(
        transformers.BertConfig(
            vocab_size=config.vocab_size,
            num_hidden_layers=config.num_layers,
            hidden_size=config.hidden_size,
            num_attention_heads=config.num_heads,
            intermediate_size=config.intermediate_size,
            max_position_embeddings=config.max_positions,
            type_vocab_size=config.type_vocab_size,
            hidden_act={"gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh"}[config.activation],
            layer_norm_eps=config.layer_norm_eps,
            attn_implementation="eager",
            **more,
        )
    ).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            center, spread = (1.0, 0.1) if name.endswith("LayerNorm.weight") else (0.0, 0.02)
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(center + spread * noise)
    return model


def as_params(tensors: Mapping[str, np.ndarray], config: ModelConfig) -> dict[str, Any]:
    """Arranges weights (or their gradients), keyed as the reference names them, as our tree.

    A linear layer of PyTorch holds [outputs, inputs]; ours [inputs, outputs], but for queries, keys
    and values.
    """
    D, N, L = config.hidden_size, config.num_heads, config.num_layers
    padding = -config.vocab_size % config.vocab_multiple

    def linear(name: str) -> dict[str, np.ndarray]:
        return {"kernel": tensors[f"{name}.weight"].T, "bias": tensors[f"{name}.bias"]}

    def norm(name: str) -> dict[str, np.ndarray]:
        return {"scale": tensors[f"{name}.weight"], "bias": tensors[f"{name}.bias"]}

    def heads(name: str) -> dict[str, np.ndarray]:
        return {
            "kernel": tensors[f"{name}.weight"],
            "bias": tensors[f"{name}.bias"].reshape(N, D // N),
        }

    def layer(name: str) -> dict[str, Any]:
        return {
            "attention": {
                "query": heads(f"{name}.attention.self.query"),
                "key": heads(f"{name}.attention.self.key"),
                "value": heads(f"{name}.attention.self.value"),
                "out": linear(f"{name}.attention.output.dense"),
            },
            "attention_norm": norm(f"{name}.attention.output.LayerNorm"),
            "mlp": {
                "up": linear(f"{name}.intermediate.dense"),
                "down": linear(f"{name}.output.dense"),
            },
            "mlp_norm": norm(f"{name}.output.LayerNorm"),
        }

    def stack(trees: list[Any]) -> Any:
        if isinstance(trees[0], dict):
            return {key: stack([tree[key] for tree in trees]) for key in trees[0]}
        return np.stack(trees)

    def found(**heads: tuple[str, Callable[[str], Any]]) -> dict[str, Any]:
        return {
            key: read(name)
            for key, (name, read) in heads.items()
            if any(tensor.startswith(f"{name}.") for tensor in tensors)
        }

    def mlm(name: str) -> dict[str, Any]:
        return {
            "transform": linear(f"{name}.transform.dense"),
            "norm": norm(f"{name}.transform.LayerNorm"),
            "bias": np.pad(tensors[f"{name}.bias"], (0, padding)),
        }

    table = "bert.embeddings.{}_embeddings.weight"
    heads_there = found(
        pooler=("bert.pooler.dense", linear),
        mlm=("cls.predictions", mlm),
        nsp=("cls.seq_relationship", linear),
        span=("qa_outputs", linear),
        classifier=("classifier", linear),
    )
    return {
        "embeddings": {
            "word": {"embedding": np.pad(tensors[table.format("word")], ((0, padding), (0, 0)))},
            "position": {"embedding": tensors[table.format("position")]},
            "segment": {"embedding": tensors[table.format("token_type")]},
            "norm": norm("bert.embeddings.LayerNorm"),
        },
        "layers": stack([layer(f"bert.encoder.layer.{i}") for i in range(L)]),
        **heads_there,
    }
