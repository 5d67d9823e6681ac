"""The tokenizer's files: casing is theirs to say, and what they say must agree."""

import json
import logging

import pytest

from bert_lamb.data.tokenization import TextOptions, WordPiece, load_tokenizer
from bert_lamb.interop import read_tokenizer
from tests.interop.conftest import (
    CONFIG,
    SETTINGS,
    TOKENS,
    V,
    refused,
    write_json,
    write_vocab,
)

CASED = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "The",
    "Dog",
    "the",
    "dog",
    "Caf",
    "##\u00e9",
]


def tokens(tokenizer, text: str) -> list[str]:
    return [tokenizer.tokens[id] for id in tokenizer.encode_batch([text])[0]]


def with_json(folder, options: TextOptions, vocabulary: list[str] = TOKENS) -> None:
    """Adds a tokenizer.json, and leaves out vocab.txt."""
    WordPiece(vocabulary, options).save(folder)
    (folder / "vocab.txt").unlink()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"do_lower_case": True}, ["caf", "##e"]),
        ({"do_lower_case": True, "strip_accents": False}, ["caf", "##\u00e9"]),
        ({"do_lower_case": False}, ["[UNK]"]),
        ({"do_lower_case": False, "strip_accents": True}, ["[UNK]"]),
    ],
)
def test_p89_casing_and_accents_are_those_of_the_settings(folder, settings, expected):
    write_json(folder / "tokenizer_config.json", settings)
    assert tokens(read_tokenizer(folder), "Caf\u00e9") == expected


def test_p89_a_cased_vocabulary_keeps_its_capitals(folder):
    write_vocab(folder, CASED)
    write_json(folder / "tokenizer_config.json", SETTINGS | {"do_lower_case": False})
    assert tokens(read_tokenizer(folder), "The Caf\u00e9") == ["The", "Caf", "##\u00e9"]


@pytest.mark.parametrize("settings", [None, {}, {"do_lower_case": None, "strip_accents": True}])
def test_p89_a_vocabulary_without_word_of_casing_is_refused(folder, settings):
    file = folder / "tokenizer_config.json"
    file.unlink() if settings is None else write_json(file, settings)
    refused(lambda: read_tokenizer(folder), file, '{"do_lower_case": true}', "vocab.txt")


def test_p89_a_cased_vocabulary_said_to_be_uncased_is_refused(folder):
    write_vocab(folder, CASED)
    refused(lambda: read_tokenizer(folder), folder / "vocab.txt", "'The'", "do_lower_case")


def test_p89_a_tokenizer_json_says_its_casing_itself(folder):
    (folder / "tokenizer_config.json").unlink()
    with_json(folder, TextOptions(lowercase=False), CASED)
    tokenizer = read_tokenizer(folder)
    assert tokens(tokenizer, "The dog") == ["The", "dog"]
    assert tokenizer.options == TextOptions(lowercase=False)


@pytest.mark.parametrize(
    ("made_with", "settings", "parts"),
    [
        (TextOptions(), {"do_lower_case": False}, ["do_lower_case = false", "lowercase = true"]),
        (TextOptions(False), {"do_lower_case": True}, ["do_lower_case = true", "= false"]),
        (TextOptions(), {"strip_accents": False}, ["strip_accents = false", "= null"]),
        (TextOptions(True, False), {"strip_accents": None}, ["strip_accents = null", "= false"]),
    ],
)
def test_p89_settings_that_contradict_tokenizer_json_are_refused(
    folder, made_with, settings, parts
):
    with_json(folder, made_with)
    file = folder / "tokenizer_config.json"
    write_json(file, settings)
    refused(lambda: read_tokenizer(folder), file, "tokenizer.json", *parts)


@pytest.mark.parametrize("strip", [None, True])
def test_settings_that_mean_the_same_agree(folder, strip):
    with_json(folder, TextOptions())
    write_json(folder / "tokenizer_config.json", SETTINGS | {"strip_accents": strip})
    assert read_tokenizer(folder).vocab_size == len(TOKENS)


@pytest.mark.parametrize(
    ("listed", "parts"),
    [
        ([*TOKENS[:6], "cat", *TOKENS[7:]], ["token 6 is 'cat', but 'dog'"]),
        (TOKENS[:-1], [f"token {len(TOKENS) - 1} is None, but {TOKENS[-1]!r}"]),
        ([*TOKENS, "z"], [f"token {len(TOKENS)} is 'z', but None"]),
    ],
    ids=["other", "shorter", "longer"],
)
def test_two_vocabularies_that_differ_are_refused(folder, listed, parts):
    with_json(folder, TextOptions())
    write_vocab(folder, listed)
    refused(lambda: read_tokenizer(folder), folder / "vocab.txt", "tokenizer.json", *parts)


def test_the_ids_are_those_of_the_files(folder):
    direct = load_tokenizer(folder / "vocab.txt")
    assert read_tokenizer(folder).hash == direct.hash
    with_json(folder, TextOptions())
    assert read_tokenizer(folder).hash == direct.hash


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tokenize_chinese_chars", False),
        ("do_basic_tokenize", False),
        ("never_split", ["[dog]"]),
        ("additional_special_tokens", ["<user>"]),
        ("extra_special_tokens", {"image": "<image>"}),
        ("do_lower_case", "true"),
        ("strip_accents", 1),
        ("tokenizer_class", "BertJapaneseTokenizer"),
        ("cls_token", "<s>"),
        ("mask_token", {"content": "<mask>", "lstrip": True}),
        ("added_tokens_decoder", ["[PAD]"]),
    ],
)
def test_settings_that_would_give_other_ids_are_refused(folder, key, value):
    file = folder / "tokenizer_config.json"
    write_json(file, SETTINGS | {key: value})
    refused(lambda: read_tokenizer(folder), file, key, "expected")


def test_the_special_tokens_as_transformers_writes_them_are_accepted(folder):
    token = {"lstrip": False, "normalized": False, "rstrip": False, "special": True}
    decoder = {str(id): token | {"content": TOKENS[id]} for id in range(5)}
    write_json(
        folder / "tokenizer_config.json",
        SETTINGS | {"added_tokens_decoder": decoder, "mask_token": token | {"content": "[MASK]"}},
    )
    write_json(folder / "special_tokens_map.json", {"cls_token": "[CLS]"})
    write_json(folder / "added_tokens.json", {"[MASK]": 4})
    assert read_tokenizer(folder).mask_id == 4


@pytest.mark.parametrize("added", [{"<user>": V}, {"dog": 6}, {"[MASK]": 5}])
def test_added_tokens_are_refused(folder, added):
    write_json(folder / "added_tokens.json", added)
    refused(
        lambda: read_tokenizer(folder), folder / "added_tokens.json", json.dumps(next(iter(added)))
    )
    (folder / "added_tokens.json").unlink()
    decoder = {str(id): {"content": token} for token, id in added.items()}
    write_json(folder / "tokenizer_config.json", SETTINGS | {"added_tokens_decoder": decoder})
    refused(lambda: read_tokenizer(folder), "added token", json.dumps(next(iter(added))))


def test_another_name_in_the_special_tokens_map_is_refused(folder):
    write_json(folder / "special_tokens_map.json", {"sep_token": "</s>"})
    refused(
        lambda: read_tokenizer(folder),
        folder / "special_tokens_map.json",
        'sep_token = "</s>": expected "[SEP]"',
    )


def test_more_tokens_than_the_word_table_has_rows_are_refused(folder):
    write_json(folder / "config.json", CONFIG | {"vocab_size": len(TOKENS) - 1})
    refused(
        lambda: read_tokenizer(folder),
        folder / "vocab.txt",
        f"{len(TOKENS)} tokens",
        f"vocab_size = {len(TOKENS) - 1}",
    )


def test_fewer_tokens_than_the_word_table_has_rows_are_noted(folder, caplog):
    write_json(folder / "config.json", CONFIG | {"vocab_size": len(TOKENS) + 4})
    with caplog.at_level(logging.INFO, logger="bert_lamb.interop"):
        tokenizer = read_tokenizer(folder)
    assert tokenizer.vocab_size == len(TOKENS)
    first, last = len(TOKENS), len(TOKENS) + 3
    assert f"rows {first} to {last} of the word table are never used" in caplog.text


@pytest.mark.parametrize("name", ["vocab.txt", "tokenizer.json", "tokenizer_config.json"])
def test_a_git_lfs_pointer_is_recognized(folder, name):
    (folder / name).write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n")
    refused(lambda: read_tokenizer(folder), folder / name, "git lfs pull")


def test_a_folder_without_tokenizer_is_refused(folder):
    (folder / "vocab.txt").unlink()
    refused(lambda: read_tokenizer(folder), folder, "tokenizer.json", "vocab.txt")


def test_settings_that_are_not_json_are_refused(folder):
    (folder / "tokenizer_config.json").write_text("do_lower_case = true")
    refused(lambda: read_tokenizer(folder), folder / "tokenizer_config.json", "not JSON")
