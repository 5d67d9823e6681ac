"""`bert-lamb data`: text to a vocabulary and records."""

import argparse
import os
import sys
from pathlib import Path

from bert_lamb.cli.verbs import OK, add_verb


def add_data(verbs: argparse._SubParsersAction) -> None:
    """Adds `data` with its steps."""
    data = add_verb(verbs, "data", "turn text into a vocabulary and records",
                 "bert-lamb data vocab --help")  # fmt: skip
    steps = data.add_subparsers(metavar="STEP", required=True)

    vocab = add_verb(
        steps, "vocab", "learn a WordPiece vocabulary from text",
        "bert-lamb data vocab --source 'books/*.txt.gz' --size 30000 --output my_vocab",
    )  # fmt: skip
    _add_sources(vocab)
    vocab.add_argument("--size", type=int, default=30000, help="tokens wanted (default 30000)")
    vocab.add_argument("--cased", action="store_true", help="keep capital letters and accents")
    vocab.add_argument("--output", required=True, help="folder for tokenizer.json and vocab.txt")
    vocab.add_argument("--overwrite", action="store_true", help="replace a vocabulary in --output")
    vocab.set_defaults(verb=_data_vocab)

    build = add_verb(
        steps, "build", "turn text into records of sentence pairs to pretrain on",
        "bert-lamb data build --source 'books/*.txt.gz' --vocab my_vocab --seq-length 128 \\\n"
        "      --heldout 0.02 --workers 8 --output records/seq128",
    )  # fmt: skip
    _add_sources(build)
    build.add_argument(
        "--vocab", required=True, help="folder made by `data vocab`, a tokenizer.json or vocab.txt"
    )
    build.add_argument(
        "--cased", action="store_true", help="for a vocab.txt: it is of the cased kind"
    )
    build.add_argument(
        "--seq-length", type=int, default=128, help="tokens per row, 128 and 512 for the two phases"
    )
    build.add_argument(
        "--output",
        required=True,
        help="folder to make; with --heldout its folders train/ and heldout/ hold the records",
    )
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
    build.add_argument("--overwrite", action="store_true", help="replace records in --output")
    build.set_defaults(verb=_data_build)


def _add_sources(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--source", action="append", required=True, metavar="TEXT",
        help="a file, a quoted glob or a folder of .txt (documents divided by blank lines) or "
        ".jsonl files, plain or .gz .xz .zst, local or gs://; `python:` is the English prose that "
        "this Python carries; give it several times for several sources",
    )  # fmt: skip
    parser.add_argument(
        "--text-field", default="text", help="key of the text in .jsonl files, default text"
    )
    parser.add_argument(
        "--on-error", choices=("error", "replace", "skip"), default="error",
        help="what to do with bytes that are not UTF-8 (default: stop and say where they are)",
    )  # fmt: skip


def _data_vocab(args: argparse.Namespace) -> int:
    from bert_lamb.data.corpus import ReadStats, open_sources, read_texts
    from bert_lamb.data.errors import DataError
    from bert_lamb.data.tokenization import Tokenizer

    sources = open_sources(args.source, on_error=args.on_error, text_field=args.text_field)
    files = [Path(args.output, name) for name in ("tokenizer.json", "vocab.txt")]
    if not args.output or (not args.overwrite and any(file.exists() for file in files)):
        raise DataError(
            f"--output={args.output!r}: expected a folder without a vocabulary, since records made "
            "with it would be lost; name another one, or add --overwrite"
        )
    Path(args.output).mkdir(parents=True, exist_ok=True)
    stats = ReadStats()
    texts = read_texts(sources, stats)
    tokenizer = Tokenizer.train(texts, args.size, lowercase=not args.cased)
    tokenizer.save(args.output)
    for fault in stats.faults:
        print(f"WARNING: {fault}", file=sys.stderr)
    if stats.bytes_dropped or stats.lines_skipped:
        print(f"WARNING: {stats.lines_skipped} lines skipped, {stats.bytes_dropped} bytes dropped",
              file=sys.stderr)  # fmt: skip
    print(f"{tokenizer.vocab_size} tokens in {args.output}/vocab.txt and tokenizer.json")
    return OK


def _data_build(args: argparse.Namespace) -> int:
    from bert_lamb.data.building.build import build_records
    from bert_lamb.data.building.progress import build_progress
    from bert_lamb.data.building.report import read_table
    from bert_lamb.data.corpus import open_sources
    from bert_lamb.data.tokenization import Tokenizer

    sources = open_sources(args.source, on_error=args.on_error, text_field=args.text_field)
    with build_progress() as progress:
        manifests = build_records(
            sources, args.output, Tokenizer.load(args.vocab, lowercase=not args.cased),
            args.seq_length, seed=args.seed, workers=args.workers, num_shards=args.shards,
            heldout=args.heldout, copies=args.copies, overwrite=args.overwrite, progress=progress,
        )  # fmt: skip
    for folder in manifests:
        print(f"\n{folder}\n{read_table(folder)}", end="")
    return OK
