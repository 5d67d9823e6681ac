"""Text to ids and back."""

from bert_lamb.data.tokenization.wordpiece import Tokenizer

__all__ = ["Tokenizer"]
