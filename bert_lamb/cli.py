"""The `bert-lamb` command: one small function per verb.

Heavy packages are imported inside the verbs, so that `bert-lamb --help` answers at once.
"""

import argparse
import difflib
import json
import logging
import os
import re
import runpy
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import bert_lamb
from bert_lamb.config import ConfigError, PretrainConfig, from_dict, to_dict

OK, FAULT = 0, 1


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one verb.

    Returns:
        0 if it did its work, 1 for a fault that its last line explains, 2 for a wrong command
        line, 128 + the signal's number if a run was asked to stop and saved its state.
    """
    parser = _parser()
    known, rest = parser.parse_known_args(argv)
    if rest and known.verb is not _pretrain:
        parser.error(f"unknown arguments: {' '.join(rest)}")
    known.config_flags = rest
    logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S", level=logging.INFO)
    for noisy in ("absl", "jax", "orbax", "grain"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    try:
        return known.verb(known)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output has left; nothing more can be said to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAULT
    except Exception as error:
        if not _is_fault(error):
            raise
        print(f"bert-lamb: {_message(error)}", file=sys.stderr)
        return FAULT


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename and error.strerror:
        return (
            f"{error.filename}: {error.strerror}; check this path, the space and the rights there, "
            "or give another one"
        )
    return str(error)


def _folder(text: str) -> Path:
    """Refuses the empty path, which a shell makes of an unset variable and means "here"."""
    if not text.strip():
        raise argparse.ArgumentTypeError("empty; expected the path of a folder")
    return Path(text)


def _is_fault(error: Exception) -> bool:
    """Says whether the message alone tells the user what to do."""
    from bert_lamb.data.errors import DataError

    # The text of an OSError names the file and what the system said.
    if isinstance(error, ConfigError | DataError | OSError):
        return True
    # Only a verb that imported these can raise them.
    checkpoint = sys.modules.get("bert_lamb.training.checkpoint")
    recorder = sys.modules.get("bert_lamb.training.recorder")
    return (checkpoint is not None and isinstance(error, checkpoint.CheckpointError)) or (
        recorder is not None and isinstance(error, recorder.NonFiniteError)
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bert-lamb",
        description="Pretrain BERT in JAX with large batches: from text to a checkpoint.",
        epilog="Each verb explains itself: bert-lamb VERB --help",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=bert_lamb.__version__)
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    _add_data(verbs)
    _add_pretrain(verbs)
    _add_evaluate(verbs)
    _add_fill_mask(verbs)
    _add_inspect(verbs)
    return parser


def _verb(
    verbs: argparse._SubParsersAction, name: str, summary: str, example: str
) -> argparse.ArgumentParser:
    return verbs.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def _add_data(verbs: argparse._SubParsersAction) -> None:
    data = _verb(verbs, "data", "turn text into a vocabulary and records",
                 "bert-lamb data vocab --help")  # fmt: skip
    steps = data.add_subparsers(metavar="STEP", required=True)

    vocab = _verb(
        steps, "vocab", "learn a WordPiece vocabulary from text",
        "bert-lamb data vocab --source 'books/*.txt.gz' --size 30000 --output my_vocab",
    )  # fmt: skip
    _add_sources(vocab)
    vocab.add_argument("--size", type=int, default=30000, help="tokens wanted (default 30000)")
    vocab.add_argument("--cased", action="store_true", help="keep capital letters and accents")
    vocab.add_argument("--output", required=True, help="folder for tokenizer.json and vocab.txt")
    vocab.add_argument("--overwrite", action="store_true", help="replace a vocabulary in --output")
    vocab.set_defaults(verb=_data_vocab)

    build = _verb(
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


def _add_pretrain(verbs: argparse._SubParsersAction) -> None:
    pretrain = _verb(
        verbs, "pretrain", "pretrain BERT as a config file says; resume if it was stopped",
        "bert-lamb pretrain --config=configs/demo.py --workdir=runs/mine \\\n"
        "      --config.optimizer.weight_decay=0.02 --config.phases[0].steps=100",
    )  # fmt: skip
    pretrain.add_argument(
        "--config", required=True, metavar="FILE",
        help="Python file whose get_config() returns the configuration; a number, flag or text "
        "in it is set on the command line as --config.KEY=VALUE",
    )  # fmt: skip
    pretrain.add_argument(
        "--workdir", required=True, type=_folder,
        help="folder for checkpoints, metrics.jsonl and TensorBoard files; the same command with "
        "the same folder resumes",
    )  # fmt: skip
    pretrain.add_argument(
        "--dry-run", action="store_true", help="check everything, print the phases, do not train"
    )
    pretrain.set_defaults(verb=_pretrain)


def _add_evaluate(verbs: argparse._SubParsersAction) -> None:
    evaluate = _verb(
        verbs, "evaluate", "score a pretrained model on held-out records",
        "bert-lamb evaluate --workdir=runs/demo --records=runs/demo-data/seq128/heldout",
    )  # fmt: skip
    _add_checkpoint(evaluate)
    evaluate.add_argument("--records", required=True, help="folder of held-out records")
    evaluate.add_argument(
        "--train-records",
        help="folder of training records, to compare with a model of word frequencies only",
    )
    evaluate.add_argument("--batch", type=int, default=32, help="rows at once, default 32")
    evaluate.add_argument("--max-examples", type=int, default=0, help="0, the default, takes all")
    evaluate.add_argument("--json", action="store_true", help="print JSON instead of a table")
    evaluate.set_defaults(verb=_evaluate)


def _add_fill_mask(verbs: argparse._SubParsersAction) -> None:
    fill = _verb(
        verbs, "fill-mask", "guess the words behind [MASK]",
        "bert-lamb fill-mask --workdir=runs/demo 'This function returns a new [MASK].'",
    )  # fmt: skip
    _add_checkpoint(fill)
    fill.add_argument("--top", type=int, default=5, help="guesses per mask, default 5")
    fill.add_argument("sentence", nargs="+", help="text with [MASK] in it, quoted")
    fill.set_defaults(verb=_fill_mask)


def _add_checkpoint(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workdir", required=True, type=_folder, help="folder of a pretraining run"
    )
    parser.add_argument("--step", type=int, help="of the checkpoint (default: the newest)")


def _add_inspect(verbs: argparse._SubParsersAction) -> None:
    inspect = _verb(
        verbs, "inspect", "list what a checkpoint holds",
        "bert-lamb inspect runs/demo/checkpoints/500",
    )  # fmt: skip
    inspect.add_argument("checkpoint", help="checkpoint folder")
    inspect.set_defaults(verb=_inspect)


def _data_vocab(args: argparse.Namespace) -> int:
    from bert_lamb.data.corpus import ReadStats, open_sources, read_texts
    from bert_lamb.data.errors import DataError
    from bert_lamb.data.tokenizer import Tokenizer

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
    from bert_lamb.data.build import build_records
    from bert_lamb.data.corpus import open_sources
    from bert_lamb.data.progress import build_progress
    from bert_lamb.data.report import read_table
    from bert_lamb.data.tokenizer import Tokenizer

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


def _pretrain(args: argparse.Namespace) -> int:
    from bert_lamb.training.trainer import describe_run, pretrain

    config = _load_config(args.config, args.config_flags)
    if args.dry_run:
        print(describe_run(config))
        return OK
    outcome = pretrain(config, args.workdir)
    if outcome.stopped_by is not None:
        print(f"stopped by signal {outcome.stopped_by} after step {outcome.step}, which is saved; "
              "the same command resumes")  # fmt: skip
        return 128 + outcome.stopped_by
    print(f"done: checkpoints, metrics.jsonl and tensorboard/ are in {args.workdir}")
    return OK


def _load_config(path: str, overrides: Sequence[str]) -> PretrainConfig:
    """Evaluates a config file, fills in the defaults and applies `--config.KEY=VALUE` overrides.

    The file is checked first, so that ml_collections, which parses the overrides by the types it
    finds, meets every key there is with a value of the right type.
    """
    from absl import flags
    from ml_collections import ConfigDict, config_flags

    from_file = from_dict(PretrainConfig, _run_config_file(path))
    for override in overrides:
        _check_override(override, to_dict(from_file))
    values, argv = flags.FlagValues(), ["bert-lamb", *overrides]
    try:
        config_flags.DEFINE_config_dict(
            "config", ConfigDict(to_dict(from_file)), flag_values=values, sys_argv=argv
        )
        rest = values(argv)[1:]
    except (flags.Error, AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        text = " ".join(map(str, error.args)) or type(error).__name__
        raise ConfigError(f"{' '.join(overrides)}: {text}") from None
    if rest:
        raise ConfigError(f"unknown arguments: {' '.join(rest)}")
    return from_dict(PretrainConfig, values.config.to_dict())


def _check_override(override: str, config: Mapping[str, Any]) -> None:
    """Raises ConfigError if `--config.KEY=VALUE` names no key, with the nearest one there is."""
    key = override.partition("=")[0]
    if not key.startswith("--config."):
        raise ConfigError(f"unknown argument {override}; keys are set as --config.KEY=VALUE")
    here: Any = config
    for part in re.findall(r"[^.\[\]]+|\[[^\]]*\]?", key.removeprefix("--config.")):
        if isinstance(here, Mapping):
            if part not in here:
                near = difflib.get_close_matches(part, here, n=1)
                hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(here)}"
                raise ConfigError(f"{override}: unknown key {part}; {hint}")
            here = here[part]
        elif isinstance(here, list):
            number = part.strip("[]")
            if not number.isdigit() or int(number) >= len(here):
                raise ConfigError(f"{override}: index {number}, expected [0] to [{len(here) - 1}]")
            here = here[int(number)]
        else:
            raise ConfigError(f"{override}: there is no {part} in a single value")
    if isinstance(here, Mapping | list) or here is None:
        raise ConfigError(f"{override}: only single values can be set here; edit the config file")
    value = override.partition("=")[2]
    if "=" in override and not _fits(value, here):
        expected = {bool: "True or False", int: "a whole number", float: "a number"}[type(here)]
        raise ConfigError(f"{override}: expected {expected}")


def _fits(value: str, like: object) -> bool:
    """Says whether a flag's text can become a value of the type that the config has."""
    if isinstance(like, bool):
        return value.lower() in ("true", "t", "1", "false", "f", "0")
    if not isinstance(like, int | float):
        return True
    try:
        type(like)(value)
    except ValueError:
        return False
    return True


def _run_config_file(path: str) -> Mapping[str, Any]:
    """Runs a Python file and returns what its get_config() does, as plain values."""
    if not Path(path).is_file():
        raise ConfigError(f"--config={path}: no such file; see the folder configs/")
    try:
        get_config = runpy.run_path(path).get("get_config")
        config: Any = get_config() if get_config is not None else None
    except (Exception, SystemExit) as error:  # whatever the user's code does
        raise ConfigError(f"--config={path}: {type(error).__name__}: {error}") from error
    if get_config is None:
        raise ConfigError(f"--config={path}: the file defines no get_config()")
    config = config.to_dict() if hasattr(config, "to_dict") else config
    if not isinstance(config, Mapping):
        raise ConfigError(
            f"--config={path}: get_config() returned {type(config).__name__}, expected a ConfigDict"
        )
    return config


def _evaluate(args: argparse.Namespace) -> int:
    from bert_lamb.training.saved import score_saved

    score = score_saved(
        args.workdir, args.step, args.records, args.train_records,
        batch=args.batch, max_examples=args.max_examples,
    )  # fmt: skip
    if args.json:
        print(json.dumps(score, indent=2))
    else:
        width = max(map(len, score))
        print("\n".join(f"{name:<{width}}  {_shown(value)}" for name, value in score.items()))
    return OK


def _shown(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _fill_mask(args: argparse.Namespace) -> int:
    from bert_lamb.evaluation.fill_mask import fill_mask
    from bert_lamb.training.saved import load_saved

    saved = load_saved(args.workdir, args.step)
    for sentence in args.sentence:
        print(sentence)
        masks = fill_mask(saved.config.model, saved.params, saved.tokenizer, sentence, top=args.top)
        for guesses in masks:
            print("   " + "  ".join(f"{g.token} {g.probability:.1%}" for g in guesses))
    return OK


def _inspect(args: argparse.Namespace) -> int:
    from bert_lamb.training.checkpoint import describe

    print(describe(args.checkpoint))
    return OK


if __name__ == "__main__":
    sys.exit(main())
