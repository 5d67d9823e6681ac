"""Weights, settings and vocabularies of other programs.

Modules, left to right:
    errors, files: what is refused, and how the files of a folder are read.
    safetensors_files: the tensors of a folder.
    huggingface_config, huggingface_names, huggingface_tokenizer: the parts of a Hugging Face model.
    huggingface: the three readers that others call.

Nothing is downloaded, nothing is unpickled, and PyTorch is not needed.
"""

from bert_lamb.interop.errors import InteropError
from bert_lamb.interop.huggingface import (
    EncoderReport,
    read_encoder,
    read_model_config,
    read_tokenizer,
)

__all__ = [
    "EncoderReport",
    "InteropError",
    "read_encoder",
    "read_model_config",
    "read_tokenizer",
]
