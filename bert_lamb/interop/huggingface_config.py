"""config.json of a Hugging Face BERT as our `ModelConfig`."""

import sys
from pathlib import Path
from typing import Any

from bert_lamb.config import ModelConfig
from bert_lamb.interop.errors import InteropError
from bert_lamb.interop.files import open_folder, read_json, short

CONFIG_FILE = "config.json"

# Keys of integers of at least 1, which have no default: the shapes of tensors follow from them.
_SHAPES = {
    "vocab_size": "vocab_size",
    "num_hidden_layers": "num_layers",
    "hidden_size": "hidden_size",
    "num_attention_heads": "num_heads",
    "intermediate_size": "intermediate_size",
    "max_position_embeddings": "max_positions",
    "type_vocab_size": "type_vocab_size",
}
# Keys of numbers that old files lack. BertConfig's defaults for them are those of ModelConfig.
_RATES = {
    "hidden_dropout_prob": "hidden_dropout",
    "attention_probs_dropout_prob": "attention_dropout",
}
_POSITIVE = {"layer_norm_eps": "layer_norm_eps", "initializer_range": "init_stddev"}
_ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}
# Keys that would make another function of the same tensors, and the values with which they do not.
_NEUTRAL: dict[str, tuple[object, ...]] = {
    "position_embedding_type": ("absolute",),
    "is_decoder": (False,),
    "add_cross_attention": (False,),
    "is_encoder_decoder": (False,),
    "pruned_heads": ({}, None),
    "quantization_config": (None,),
    "auto_map": (None, {}),  # names Python code that is the model
}


def read_model_config(folder: str | Path) -> ModelConfig:
    """Reads config.json.

    The keys that say how our program computes (dtype, scan_layers, ...) keep their defaults.

    Args:
        folder: a local folder.

    Raises:
        InteropError: if the folder or the file is missing, or if a key is missing, of another type,
            out of range, or says that the model is not BERT's encoder as we have it.
    """
    file = open_folder(folder) / CONFIG_FILE
    content = read_json(file)
    if content.get("model_type") != "bert":
        raise InteropError(
            f'{file}: model_type = {short(content.get("model_type"))}: expected "bert"; other '
            "models are not read"
        )
    for key, values in _NEUTRAL.items():
        if key in content and content[key] not in values:
            raise InteropError(
                f"{file}: {key} = {short(content[key])}: expected {short(values[0])}, or no such "
                "key; such a model cannot be computed here"
            )
    fields: dict[str, Any] = {ours: _shape(file, content, key) for key, ours in _SHAPES.items()}
    fields |= {ours: _rate(file, content, key) for key, ours in _RATES.items() if key in content}
    fields |= {
        ours: _positive(file, content, key) for key, ours in _POSITIVE.items() if key in content
    }
    if fields["hidden_size"] % fields["num_heads"]:
        raise InteropError(
            f"{file}: hidden_size = {fields['hidden_size']}: expected a multiple of "
            f"num_attention_heads = {fields['num_heads']}"
        )
    return ModelConfig(activation=_activation(file, content), **fields)


def _shape(file: Path, content: dict[str, Any], key: str) -> int:
    value = _present(file, content, key)
    if type(value) is not int or value < 1:
        raise InteropError(f"{file}: {key} = {short(value)}: expected an integer of at least 1")
    return value


def _rate(file: Path, content: dict[str, Any], key: str) -> float:
    value = content[key]
    if type(value) not in (int, float) or not 0 <= value < 1:
        raise InteropError(f"{file}: {key} = {short(value)}: expected a rate in [0, 1)")
    return float(value)


def _positive(file: Path, content: dict[str, Any], key: str) -> float:
    value = content[key]
    # Compared with the largest float, since a huge integer cannot be made one.
    if type(value) not in (int, float) or not 0 < value <= sys.float_info.max:
        raise InteropError(f"{file}: {key} = {short(value)}: expected a number of more than 0")
    return float(value)


def _activation(file: Path, content: dict[str, Any]) -> Any:
    value = _present(file, content, "hidden_act")
    if not isinstance(value, str) or value not in _ACTIVATIONS:
        raise InteropError(
            f"{file}: hidden_act = {short(value)}: expected one of {', '.join(_ACTIVATIONS)}"
        )
    return _ACTIVATIONS[value]


def _present(file: Path, content: dict[str, Any], key: str) -> Any:
    if key not in content:
        raise InteropError(
            f"{file}: {key} is missing, and nothing may be assumed for it; add the value the model "
            "was trained with"
        )
    return content[key]
