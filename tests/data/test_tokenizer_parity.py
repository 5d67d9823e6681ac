"""Ids equal those of google-research/bert's own run and of transformers' slow BertTokenizer."""

import json
import lzma
from pathlib import Path

import pytest

from bert_lamb.data.tokenization import TextOptions, WordPiece, load_tokenizer

PARAGRAPHS = 5000
VOCABULARY = {True: "bert-base-uncased-vocab.txt", False: "bert-base-cased-vocab.txt"}


@pytest.fixture(scope="module")
def paragraphs(shared: Path) -> list[str]:
    """Of Wikipedia and of books, half each; all sorts of characters are among them."""
    found = []
    for name in ("wiki-00", "books-00"):
        part: list[str] = []
        with lzma.open(shared / f"data/corpus/{name}.jsonl.xz", "rt", encoding="utf-8") as lines:
            for line in lines:
                part += [p[:400] for p in json.loads(line)["text"].split("\n") if p.strip()][:12]
                if len(part) >= PARAGRAPHS // 2:
                    break
        found += part[: PARAGRAPHS // 2]
    assert len(found) == PARAGRAPHS
    assert sum(not p.isascii() for p in found) > 200
    return found


@pytest.mark.parametrize("lowercase", [True, False], ids=["uncased", "cased"])
def test_paragraphs_get_the_ids_of_transformers(shared, paragraphs, lowercase):
    transformers = pytest.importorskip("transformers")
    path = shared / "data/vocab" / VOCABULARY[lowercase]
    slow = transformers.BertTokenizer(str(path), do_lower_case=lowercase)
    # transformers composes characters since 2023, Google's code does not.
    ours = load_tokenizer(path, TextOptions(lowercase=lowercase, nfc=True))
    expected = [slow.convert_tokens_to_ids(slow.tokenize(p)) for p in paragraphs]
    assert ours.encode_batch(paragraphs) == expected
    assert WordPiece(ours.tokens, ours.options).encode_batch(paragraphs[::-1]) == expected[::-1]
    if lowercase:
        google = load_tokenizer(path)
        assert google.encode_batch(paragraphs) == expected


def test_examples_of_googles_script_hold_our_ids(shared):
    """Unmasked and without special tokens, each segment is a stretch of a document's ids."""
    tokenizer = load_tokenizer(shared / "data/vocab" / VOCABULARY[True])
    text = (shared / "data/peer_golden/sample_text.txt").read_text("utf-8")
    documents = [
        [id for ids in tokenizer.encode_batch(document.split("\n")) for id in ids]
        for document in text.split("\n\n")
    ]
    found = [" ".join(map(str, ["", *ids, ""])) for ids in documents]
    golden = json.loads(
        (shared / "data/peer_golden/golden_sample_text_seed12345.json").read_text("utf-8")
    )
    segments = 0
    for example in golden:
        ids = list(example["input_ids"])
        labels = zip(
            example["masked_lm_positions"],
            example["masked_lm_ids"],
            example["masked_lm_weights"],
            strict=True,
        )
        for position, id, weight in labels:
            if weight:
                ids[position] = id
        length = sum(example["input_mask"])
        assert ids[0] == tokenizer.cls_id
        middle = ids.index(tokenizer.sep_id)
        assert ids[length - 1] == tokenizer.sep_id
        assert not any(ids[length:])
        for segment in (ids[1:middle], ids[middle + 1 : length - 1]):
            assert any(f" {' '.join(map(str, segment))} " in document for document in found)
            segments += 1
    assert segments == 120
