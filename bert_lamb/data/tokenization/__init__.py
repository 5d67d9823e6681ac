"""Text to ids and back: WordPiece and SentencePiece behind one interface.

Modules:
    tokenizer: the interface `Tokenizer`.
    loading: `load_tokenizer`, for every kind of file.
    text: `TextOptions` and the rules for characters that both kinds share.
    wordpiece, wordpiece_json, wordpiece_training: Google's WordPiece.
    sentence_piece, model_proto, sentence_piece_training: SentencePiece.
"""

from bert_lamb.data.tokenization.loading import TOKENIZER_FILES, load_tokenizer
from bert_lamb.data.tokenization.sentence_piece import SentencePiece
from bert_lamb.data.tokenization.sentence_piece_training import train_sentencepiece
from bert_lamb.data.tokenization.text import TextOptions, count_removed, vowel_sign_share
from bert_lamb.data.tokenization.tokenizer import SPECIAL_TOKENS, Tokenizer
from bert_lamb.data.tokenization.wordpiece import WordPiece
from bert_lamb.data.tokenization.wordpiece_training import train_wordpiece

__all__ = [
    "SPECIAL_TOKENS",
    "TOKENIZER_FILES",
    "SentencePiece",
    "TextOptions",
    "Tokenizer",
    "WordPiece",
    "count_removed",
    "load_tokenizer",
    "train_sentencepiece",
    "train_wordpiece",
    "vowel_sign_share",
]
