"""`bert-lamb data`: text to a vocabulary and records."""

import argparse
import os
import shlex
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from bert_lamb.cli.exchange import add_export, add_import
from bert_lamb.cli.verbs import OK, add_verb

if TYPE_CHECKING:
    from bert_lamb.data.tokenization import TextOptions


def add_data(verbs: argparse._SubParsersAction) -> None:
    """Adds `data` with its steps."""
    data = add_verb(verbs, "data", "turn text into a vocabulary and records, and look at them",
                 "bert-lamb data vocab --help")  # fmt: skip
    steps = data.add_subparsers(metavar="STEP", required=True)
    _add_vocab(steps)
    _add_build(steps)
    _add_inspect(steps)
    add_export(steps)
    add_import(steps)


def _add_vocab(steps: argparse._SubParsersAction) -> None:
    vocab = add_verb(
        steps, "vocab", "learn a vocabulary from text",
        "bert-lamb data vocab --source 'books/*.txt.gz' --size 30000 --output my_vocab",
    )  # fmt: skip
    _add_sources(vocab)
    vocab.add_argument("--size", type=int, default=30000, help="tokens wanted (default 30000)")
    vocab.add_argument(
        "--model", choices=("wordpiece", "unigram", "bpe"), default="wordpiece",
        help="kind of vocabulary: BERT's WordPiece (default), or SentencePiece's unigram or BPE, "
        "for languages without spaces between words",
    )  # fmt: skip
    _add_text_options(vocab)
    vocab.add_argument("--output", required=True, help="folder to make for the vocabulary")
    vocab.add_argument("--overwrite", action="store_true", help="replace a vocabulary in --output")
    vocab.set_defaults(verb=_data_vocab)


def _add_build(steps: argparse._SubParsersAction) -> None:
    build = add_verb(
        steps, "build", "turn text into records to pretrain on; goes on if it was interrupted",
        "bert-lamb data build --source 'books/*.txt.gz' --vocab my_vocab --seq-length 128 \\\n"
        "      --heldout 0.02 --workers 8 --output records/seq128",
    )  # fmt: skip
    _add_sources(build)
    build.add_argument(
        "--weight", action="append", type=float, metavar="W",
        help="times each document of a source is used (2 for twice, 0.5 for half of them), once "
        "for each --source in their order; default 1",
    )  # fmt: skip
    build.add_argument(
        "--exclude-titles", action="append", default=[], metavar="FILE",
        help="leave out documents whose title is in this file: a title a line, or a SQuAD .json "
        "whose articles are not to be pretrained on",
    )  # fmt: skip
    build.add_argument(
        "--vocab", required=True,
        help="folder made by `data vocab`, a tokenizer.json, vocab.txt or SentencePiece .model",
    )  # fmt: skip
    _add_text_options(build)
    build.add_argument(
        "--language", default="en", help="code of the rules that divide sentences, default en"
    )
    build.add_argument(
        "--seq-length", type=int, default=128, help="tokens per row, 128 and 512 for the two phases"
    )
    build.add_argument(
        "--examples", choices=("nsp", "sop", "single"), default="nsp",
        help="nsp: sentence pairs, half of them with a random second (BERT, default); sop: pairs, "
        "half of them swapped (ALBERT); single: one segment, no sentence task (RoBERTa)",
    )  # fmt: skip
    build.add_argument(
        "--cross-documents", action="store_true",
        help="with --examples single: rows go on with the next document behind a [SEP]",
    )  # fmt: skip
    build.add_argument(
        "--short-seq-prob", type=float,
        help="share of documents cut into shorter rows (default 0.1; 0 for single)",
    )  # fmt: skip
    build.add_argument(
        "--output", required=True,
        help="folder to make; with --heldout its folders train/ and heldout/ hold the records",
    )  # fmt: skip
    build.add_argument(
        "--heldout", type=float, default=0.0,
        help="share of the documents of each source, its last ones, kept for evaluation",
    )  # fmt: skip
    build.add_argument("--copies", type=int, default=1, help="passes over the text, default 1")
    build.add_argument("--shards", type=int, default=8, help="files per record set, default 8")
    build.add_argument("--seed", type=int, default=0, help="of the random choices, default 0")
    build.add_argument(
        "--workers", type=int, default=os.cpu_count() or 1,
        help="processes (default: all cores); the result does not depend on it",
    )  # fmt: skip
    build.add_argument(
        "--beam", metavar="OPTIONS",
        help="work on Apache Beam instead, with these options in quotes behind a =, such as "
        "--beam='--runner=DataflowRunner --project=P --region=R --temp_location=gs://B/tmp'",
    )  # fmt: skip
    build.add_argument("--overwrite", action="store_true", help="replace records in --output")
    build.set_defaults(verb=_data_build, resumes=True)


def _add_inspect(steps: argparse._SubParsersAction) -> None:
    inspect = add_verb(
        steps, "inspect", "show what a record set holds, with examples as text",
        "bert-lamb data inspect records/seq128/train --number 3 --masked",
    )  # fmt: skip
    inspect.add_argument("records", help="folder of a record set")
    inspect.add_argument("--start", type=int, default=0, help="first example, default 0")
    inspect.add_argument("--number", type=int, default=5, help="examples to show, default 5")
    inspect.add_argument(
        "--masked", action="store_true", help="show them as the first pass of training may see them"
    )
    inspect.add_argument("--report", action="store_true", help="show the data report as well")
    inspect.set_defaults(verb=_data_inspect)


def _add_text_options(parser: argparse.ArgumentParser) -> None:
    own = "; a folder or tokenizer.json says so itself"
    parser.add_argument(
        "--cased", action="store_true", help=f"keep capital letters and accents{own}"
    )
    parser.add_argument(
        "--strip-accents", choices=("yes", "no"),
        help=f"take accents off (default: as BERT, unless --cased){own}",
    )  # fmt: skip
    parser.add_argument(
        "--nfc", action="store_true", help=f"compose accents and letters first (NFC){own}"
    )


def _add_sources(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--source", action="append", required=True, metavar="TEXT",
        help="a file, a quoted glob or a folder: .txt (documents divided by blank lines), .jsonl, "
        ".xml (a MediaWiki dump), .parquet, .arrow; packed as .gz .xz .zst .bz2 or not, local, "
        "gs:// or s3://. A prefix says what else it is: whole: (a file a document), "
        "wikiextractor:, hf:FOLDER, tfds:NAME; `python:` is the English prose that this Python "
        "carries. Give it several times for several sources",
    )  # fmt: skip
    parser.add_argument(
        "--text-field", default="text", help="key of the text in .jsonl files, default text"
    )
    parser.add_argument(
        "--on-error", choices=("error", "replace", "skip"), default="error",
        help="what to do with bytes that are not UTF-8 and records that are none: stop and say "
        "where they are (default), put U+FFFD for such bytes, or leave out the line, which of JSON "
        "lines is the document",
    )  # fmt: skip


def _data_vocab(args: argparse.Namespace) -> int:
    from bert_lamb.data.corpus import ReadStats, open_sources, read_texts
    from bert_lamb.data.errors import DataError
    from bert_lamb.data.tokenization import (
        TOKENIZER_FILES,
        Tokenizer,
        train_sentencepiece,
        train_wordpiece,
        vowel_sign_share,
    )

    sources = open_sources(args.source, on_error=args.on_error, text_field=args.text_field)
    present = any(Path(args.output, file).exists() for file in TOKENIZER_FILES)
    if not args.output or (present and not args.overwrite):
        raise DataError(
            f"--output={args.output!r}: expected a folder without a vocabulary, since records made "
            "with it would be lost; name another one, or add --overwrite"
        )
    Path(args.output).mkdir(parents=True, exist_ok=True)  # a fault here is better found first
    stats = ReadStats()
    texts = read_texts(sources, stats)
    options = _text_options(args)
    tokenizer: Tokenizer = (
        train_wordpiece(texts, args.size, options)
        if args.model == "wordpiece"
        else train_sentencepiece(texts, args.size, args.model, options)
    )
    for file in TOKENIZER_FILES:
        Path(args.output, file).unlink(missing_ok=True)
    tokenizer.save(args.output)
    for fault in stats.faults:
        print(f"WARNING: {fault}", file=sys.stderr)
    if stats.bytes_dropped or stats.lines_skipped:
        print(f"WARNING: {stats.lines_skipped} lines skipped, {stats.bytes_dropped} bytes dropped",
              file=sys.stderr)  # fmt: skip
    if options.strips_accents and vowel_sign_share(tokenizer.tokens) > 0.01:
        print(
            "WARNING: accents were stripped, which takes vowel signs away from the scripts of "
            "India, Thai, Arabic and Hebrew; keep them with --strip-accents no",
            file=sys.stderr,
        )
    fewer = f" ({args.size} asked for: the text holds no more that repeat)"
    print(
        f"{tokenizer.vocab_size} tokens in {args.output}"
        + fewer * (tokenizer.vocab_size < args.size)
    )
    return OK


def _asks_for_text(args: argparse.Namespace) -> bool:
    return args.cased or args.nfc or args.strip_accents is not None


def _text_options(args: argparse.Namespace) -> "TextOptions":
    from bert_lamb.data.tokenization import TextOptions

    strip = None if args.strip_accents is None else args.strip_accents == "yes"
    return TextOptions(lowercase=not args.cased, strip_accents=strip, nfc=args.nfc)


def _data_build(args: argparse.Namespace) -> int:
    from bert_lamb.data.building.beam import BeamExecutor
    from bert_lamb.data.building.build import build_records
    from bert_lamb.data.building.options import BuildOptions
    from bert_lamb.data.building.pool import local_executor
    from bert_lamb.data.building.progress import build_progress
    from bert_lamb.data.building.report import read_table
    from bert_lamb.data.corpus import open_sources
    from bert_lamb.data.corpus.titles import read_titles
    from bert_lamb.data.examples import ExampleOptions
    from bert_lamb.data.tokenization import load_tokenizer

    sources = open_sources(
        args.source, weights=args.weight, on_error=args.on_error, text_field=args.text_field
    )
    options = BuildOptions(
        ExampleOptions(args.examples, args.seq_length, args.short_seq_prob, args.cross_documents),
        seed=args.seed, num_shards=args.shards, heldout=args.heldout, copies=args.copies,
        language=args.language, excluded_titles=read_titles(args.exclude_titles),
    )  # fmt: skip
    tokenizer = load_tokenizer(args.vocab, _text_options(args) if _asks_for_text(args) else None)
    with (
        build_progress() as progress,
        local_executor(args.workers)
        if args.beam is None
        else nullcontext(BeamExecutor(_split_options(args.beam))) as executor,
    ):
        manifests = build_records(
            sources, args.output, tokenizer, options,
            executor=executor, overwrite=args.overwrite, progress=progress,
        )  # fmt: skip
    for folder in manifests:
        print(f"\n{folder}\n{read_table(folder)}", end="")
    return OK


def _split_options(text: str) -> list[str]:
    from bert_lamb.data.errors import DataError

    try:
        return shlex.split(text)
    except ValueError as error:
        raise DataError(f"--beam={text!r}: {error}; close the quotes") from error


def _data_inspect(args: argparse.Namespace) -> int:
    from bert_lamb.data.inspection import describe_records, describe_report, show_examples

    examples = show_examples(args.records, args.start, args.number, masked=args.masked)
    print(describe_records(args.records))
    if args.report:
        print(describe_report(args.records), end="")
    for text in examples:
        print(text)
    return OK
