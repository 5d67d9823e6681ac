"""`bert-lamb data export` and `data import`: records to and from pre-masked TFRecords."""

import argparse

from bert_lamb.cli.verbs import OK, add_verb
from bert_lamb.config import MaskingConfig


def add_export(steps: argparse._SubParsersAction) -> None:
    """Adds `export`."""
    export = add_verb(
        steps, "export", "write records as the masked TFRecords that Google's BERT code reads",
        "bert-lamb data export --records records/seq128 --max-predictions 20 --copies 5 \\\n"
        "      --output tfrecords/seq128",
    )  # fmt: skip
    export.add_argument("--records", required=True, help="folder of records")
    export.add_argument("--output", required=True, help="folder to make, new or empty")
    export.add_argument(
        "--max-predictions", type=int, required=True, metavar="P",
        help="slots for masked tokens per row; 20 is usual for rows of 128 tokens, 80 for 512",
    )  # fmt: skip
    export.add_argument(
        "--copies", type=int, default=1,
        help="times to write each example, each time with other masks, default 1",
    )  # fmt: skip
    export.add_argument("--seed", type=int, default=0, help="of the masks, default 0")
    export.add_argument("--gzip", action="store_true", help="compress the files")
    recipe = MaskingConfig()
    export.add_argument(
        "--masking-probability", type=float, default=recipe.probability, metavar="SHARE",
        help=f"of a row's tokens that are predicted, default {recipe.probability}",
    )  # fmt: skip
    export.add_argument(
        "--mask-share", type=float, default=recipe.mask_share, metavar="SHARE",
        help=f"of those shown as [MASK], default {recipe.mask_share}",
    )  # fmt: skip
    export.add_argument(
        "--random-share", type=float, default=recipe.random_share, metavar="SHARE",
        help=f"of those shown as a random token, default {recipe.random_share}",
    )  # fmt: skip
    export.add_argument(
        "--any-random-id", action="store_true",
        help="draw random tokens from all ids, special and unused ones too, as Google's code does",
    )  # fmt: skip
    export.add_argument("--whole-word", action="store_true", help="mask whole words or none")
    export.add_argument(
        "--ngram", type=int, default=recipe.ngram,
        help=f"longest span of words masked together, default {recipe.ngram}",
    )  # fmt: skip
    export.set_defaults(verb=_export)


def add_import(steps: argparse._SubParsersAction) -> None:
    """Adds `import`."""
    verb = add_verb(
        steps, "import", "turn masked TFRecords made for Google's or NVIDIA's BERT into records",
        "bert-lamb data import --input 'tfrecords/*.tfrecord' --vocab vocab.txt \\\n"
        "      --output records/seq128",
    )  # fmt: skip
    verb.add_argument(
        "--input", action="append", required=True, metavar="FILES",
        help="a file or a quoted glob, plain or gzip, local or gs://; may be given several times",
    )  # fmt: skip
    verb.add_argument(
        "--vocab", required=True,
        help="vocabulary the files were made with: a vocab.txt, tokenizer.json or its folder",
    )  # fmt: skip
    verb.add_argument(
        "--cased", action="store_true", help="for a vocab.txt: it is of the cased kind"
    )
    verb.add_argument("--output", required=True, help="folder to make, new or empty")
    verb.set_defaults(verb=_import)


def _export(args: argparse.Namespace) -> int:
    from bert_lamb.data.exchange import export_tfrecords

    files = export_tfrecords(
        args.records,
        args.output,
        max_predictions=args.max_predictions,
        masking=MaskingConfig(
            probability=args.masking_probability,
            mask_share=args.mask_share,
            random_share=args.random_share,
            any_random_id=args.any_random_id,
            whole_word=args.whole_word,
            ngram=args.ngram,
        ),
        seed=args.seed,
        copies=args.copies,
        compressed=args.gzip,
    )
    print(f"{len(files)} files ({files[0]}), the vocabulary and export.json are in {args.output}")
    return OK


def _import(args: argparse.Namespace) -> int:
    from bert_lamb.data.exchange import import_tfrecords
    from bert_lamb.data.tokenization import TextOptions, load_tokenizer

    tokenizer = load_tokenizer(args.vocab, TextOptions(lowercase=False) if args.cased else None)
    manifest = import_tfrecords(args.input, args.output, tokenizer)
    print(
        f"{manifest.num_examples:,} examples of {manifest.seq_length} tokens in {args.output}; "
        f"{manifest.report['duplicates']:,} of {manifest.report['records']:,} records were left "
        "out: without masks they equal an earlier one"
    )
    return OK
