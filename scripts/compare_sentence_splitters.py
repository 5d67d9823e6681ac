"""Compares libraries that split English text into sentences: quality, behaviour, speed, weight.

    python -m venv splitters
    splitters/bin/pip install sentencex pysbd nltk syntok blingfire spacy
    PYTHONPATH=. splitters/bin/python scripts/compare_sentence_splitters.py \
        --corpus wiki-00.jsonl.xz books-00.jsonl.xz --glue GLUE --output FOLDER

A library that is not installed is skipped with a line. Sides:

- bert_lamb: what this package does (bert_lamb.data.sentences: sentencex and its precautions)
- sentencex, pysbd, syntok, blingfire: as their readme says, for English
- punkt: nltk's, trained here without labels on 4 MB of each corpus that nothing else below reads
- spacy: the rule `sentencizer` of a blank English pipeline
- regex: after a stop and closing quotes, before a blank and a capital: the plain baseline

All of them see one line (paragraph) at a time. GLUE is the folder with MRPC and RTE: each of their
fields is one sentence, so five at random, joined by spaces, are a paragraph whose boundaries are
known. CORPUS are files of JSON lines with their text under `text`. About two minutes on one core.
"""
# ruff: noqa: RUF001 (curly quotes are meant)

import argparse
import csv
import importlib
import json
import lzma
import random
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import machine

Splitter = Callable[[str], list[str]]

TRAINING_BYTES = 4_000_000
SPEED_BYTES = 3_000_000
BEHAVIOUR_BYTES = 600_000
SECONDS_PER_TIMING = 1.0
ROUNDS = 3
SENTENCES_PER_PARAGRAPH = 5

# Month of the release that pip installs, from the package index in November 2026: the metadata of
# an installed package does not hold it.
RELEASED = {
    "sentencex": "2026-09",
    "pysbd": "2021-02",
    "nltk": "2026-10",
    "syntok": "2022-03",
    "blingfire": "2021-09",
    "spacy": "2026-10",
}

# After one of these or a single capital, a full stop need not end a sentence.
ABBREVIATIONS = re.compile(
    r"(?i:mr|mrs|ms|dr|prof|ste?|gen|sen|rep|gov|lt|col|sgt|capt|cmdr|maj|adm|rev|hon|pres|jr|sr|inc"
    r"|corp|co|ltd|bros|nos?|vs|etc|al|e\.g|i\.e|[ap]\.m|ph\.d|[ud]\.[scnk]|e\.u|l\.a|n\.y"
    r"|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)|(?:.*\W)?[A-Z]"
)
INSIDE = re.compile(r"(\S*)([.!?])[\"'”’)\]]*\s+(?=[\"'“‘(\[]*[A-Z])")
SENTENCE = re.compile(r"[\"'“‘(]*[A-Z0-9$].*[.!?][\"'”’)]*")

# What a careful reader would do; " | " is a boundary, every other blank is none.
HARD_CASES = {
    "title": "Mr. Smith met Dr. Jones. | They spoke.",
    "military rank": "Col. Mustard and Lt. Gen. Grant left. | It rained.",
    "saint": "He lived in St. Louis. | He moved later.",
    "initials": "J. R. R. Tolkien wrote it. | It sold well.",
    "initials, closed up": "The novels of H.G. Wells were read. | They still are.",
    "decimal, money": "It cost $3.50 in 1917. | It was 2.5 times dearer.",
    "million": "Safeway paid $1.8 billion. | Shares fell 3.2 percent.",
    "U.S. inside": "The U.S. Army came. | It stayed.",
    "U.S. at the end": "He lives in the U.S. | He likes it there.",
    "p.m. at the end": "We met at 5 p.m. | The train was late.",
    "p.m. inside": "At 5 p.m. Mr. Hall left. | He ran.",
    "Inc. inside": "Apple Inc. Chairman Jobs spoke. | Shares rose.",
    "Co. at the end": "He founded Smith & Co. | It failed in 1901.",
    "Jr. inside": "Martin Luther King Jr. Day is in January. | Banks close.",
    "etc. at the end": "They sold tea, rum, etc. | The shop closed in May.",
    "e.g. inside": "Use a fruit, e.g. Bramley apples. | Peel it.",
    "et al. inside": "See Devlin et al. (2018) for this. | It helped.",
    "number, No.": "He lived at No. 10 Downing Street. | He left.",
    "page": "The proof is on p. 55. | It is short.",
    "volume and roman numeral": "It is in vol. IV of the series. | Nobody read it.",
    "year at the end": "It opened in 1917. | Two years later it closed.",
    "century, B.C.": "Rome fell in 390 B.C. | The Gauls withdrew.",
    "month": "He died on Nov. 3 of that year. | She lived on.",
    "ellipsis, goes on": "I wonder ... if it rains. | Let us see.",
    "ellipsis, ends": "I do not know... | Perhaps he left.",
    "ellipsis sign, ends": "I do not know… | Perhaps he left.",
    "question, exclamation": "Who is it? | Go away! | Nobody answered.",
    "two signs": "You did what?! | I could not believe it.",
    "quote after a stop": 'She said, "I am going." | Then she left.',
    "curly quote after a stop": "She said, “I am going.” | Then she left.",
    "single quote after a stop": "‘I am going.’ | Then she left.",
    "quote, speaker follows": "“Where are you going?” asked Alice. | He sighed.",
    "quote, capital speaker": "“Are you going?” Alice asked him. | He sighed.",
    "speech of two sentences": "“I am going. | You may stay,” said Tom. | He left.",
    "two speakers": "“Is it you?” | “It is I.” | The door opened.",
    "parenthesis sentence": "He won. | (It was his third title.) | He retired.",
    "stop in parenthesis": "The film (dir. J. Ford) won. | It was long.",
    "Wikipedia footnote": "He was born in Leeds.[1] | He died in York.[2]",
    "web address": "See www.example.com for it. | It is free.",
    "e-mail": "Write to tom.hill@example.org today. | He answers.",
    "version": "Python 3.11.7 is out. | Get it.",
    "exclamation in a name": "He worked for Yahoo! in 2004. | He left.",
    "unmatched quote": 'The 12" record sold well. | It was loud. | It is rare.',
    "unmatched apostrophe": "The boys' club met. | The girls' club won. | All ate.",
    "list number": "1. Wash the rice. | 2. Boil it.",
    "semicolon": "He came; he saw. | He won.",
    "lowercase name begins": "It is new. | iPhone sales rose.",
    "no blank": "He left.She stayed. | Nobody knew.",
}


@dataclass(frozen=True)
class Library:
    """A way to split, and the package it comes from (None: part of Python)."""

    split: Splitter
    package: str | None


def regex_split(text: str) -> list[str]:
    """Returns the pieces between a stop with its closing quotes and a blank with a capital."""
    ends = [match.end() for match in INSIDE.finditer(text)]
    return [text[i:j] for i, j in zip([0, *ends], [*ends, len(text)], strict=True)]


def load_libraries(training: Callable[[], str]) -> dict[str, Library]:
    """Returns the ways to split by name; prints a line for each whose package is absent."""

    def ours(_: Any) -> Splitter:
        return importlib.import_module("bert_lamb.data.sentences").split_sentences

    def sentencex(module: Any) -> Splitter:
        return lambda text: module.segment("en", text)

    def pysbd(module: Any) -> Splitter:
        return module.Segmenter(language="en", clean=False).segment

    def punkt(_: Any) -> Splitter:
        punkt = importlib.import_module("nltk.tokenize.punkt")
        trainer = punkt.PunktTrainer()
        trainer.INCLUDE_ALL_COLLOCS = True
        trainer.train(training(), finalize=True)
        return punkt.PunktSentenceTokenizer(trainer.get_params()).tokenize

    def syntok(_: Any) -> Splitter:
        segmenter = importlib.import_module("syntok.segmenter")

        def split(text: str) -> list[str]:
            starts = [s[0].offset for p in segmenter.analyze(text) for s in p if s]
            starts = [0, *starts[1:], len(text)]
            return [text[i:j] for i, j in pairwise(starts)]

        return split

    def blingfire(module: Any) -> Splitter:
        return lambda text: module.text_to_sentences(text).split("\n")

    def spacy(module: Any) -> Splitter:
        pipeline = module.blank("en")
        pipeline.add_pipe("sentencizer")
        return lambda text: [sentence.text_with_ws for sentence in pipeline(text).sents]

    loaders = {
        "bert_lamb": ("sentencex", ours),
        "sentencex": ("sentencex", sentencex),
        "pysbd": ("pysbd", pysbd),
        "punkt": ("nltk", punkt),
        "syntok": ("syntok", syntok),
        "blingfire": ("blingfire", blingfire),
        "spacy": ("spacy", spacy),
    }
    libraries = {}
    for name, (package, load) in loaders.items():
        try:
            libraries[name] = Library(load(importlib.import_module(package)), package)
        except ImportError as error:
            print(f"{name} is skipped: {error}", file=sys.stderr)
    return libraries | {"regex": Library(regex_split, None)}


def read_lines(path: Path, start: int, size: int) -> list[str]:
    """Returns the lines of about `size` bytes of text, after the first `start` bytes."""
    lines, position = [], 0
    with lzma.open(path, "rt", encoding="utf-8") as stream:
        for record in stream:
            text = json.loads(record)["text"]
            if position >= start:
                lines += [line for line in text.split("\n") if line.strip()]
            position += len(text.encode())
            if position >= start + size:
                return lines
    raise SystemExit(f"{path} holds {position:,} bytes of text; {start + size:,} are needed")


def untokenize(text: str) -> str:
    """Returns a sentence of MRPC, which has blanks around its punctuation, as it was printed."""
    text = re.sub(r"`` | ''", '"', text)
    text = re.sub(r' ?" (.*?) " ?', r' "\1" ', text).strip()
    text = re.sub(r" ([.,;:!?%)\]]|'(?:s|t|d|m|re|ve|ll)\b|n't\b)", r"\1", text)
    text = re.sub(r'(" )(?=[.,;:!?])', '"', text)
    return re.sub(r"([$(\[#]) ", r"\1", text)


def is_one_sentence(text: str) -> bool:
    """Whether a field begins and ends as a sentence and has no likely boundary inside.

    A stop before a blank and a capital is allowed after an abbreviation or an initial only.
    """
    return SENTENCE.fullmatch(text) is not None and all(
        stop == "." and ABBREVIATIONS.fullmatch(word.lstrip("\"'(“‘"))
        for word, stop in INSIDE.findall(text)
    )


def gold_sentences(glue: Path) -> tuple[dict[str, list[str]], dict[str, int]]:
    """Returns the sentences by task, and the number of different fields before the filter."""
    fields: dict[str, list[str]] = {"MRPC": [], "RTE": []}
    for name in ("msr_paraphrase_train.txt", "msr_paraphrase_test.txt"):
        with (glue / "MRPC" / name).open(encoding="utf-8-sig") as stream:
            for row in csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE):
                fields["MRPC"] += map(untokenize, row[3:5])
    for name in ("train.tsv", "dev.tsv"):
        with (glue / "RTE" / name).open(encoding="utf-8") as stream:
            for row in csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE):
                fields["RTE"].append(row[2].strip())
    different = {task: list(dict.fromkeys(texts)) for task, texts in fields.items()}
    kept = {task: list(filter(is_one_sentence, texts)) for task, texts in different.items()}
    return kept, {task: len(texts) for task, texts in different.items()}


def boundaries(sentences: Iterable[str]) -> set[int]:
    """Returns the cuts of a line, each as the count of non-blank characters before it."""
    counts = list(accumulate(len("".join(s.split())) for s in sentences))
    return set(counts[:-1]) - {0, counts[-1] if counts else 0}


def f1(found: int, wanted: int, common: int) -> float:
    """Returns the harmonic mean of precision and recall; 1 where there is nothing to find."""
    return 2 * common / (found + wanted) if found + wanted else 1.0


def measure_quality(split: Splitter, paragraphs: list[list[str]]) -> dict[str, float]:
    """Returns precision, recall and F1 of the boundaries inside the paragraphs."""
    found = wanted = common = whole = 0
    for sentences in paragraphs:
        gold, cuts = boundaries(sentences), boundaries(split(" ".join(sentences)))
        found, wanted, common = found + len(cuts), wanted + len(gold), common + len(gold & cuts)
        whole += gold == cuts
    return {
        "precision": common / found if found else 0.0,
        "recall": common / wanted,
        "f1": f1(found, wanted, common),
        "paragraphs_right": whole / len(paragraphs),
    }


def make_paragraphs(sentences: list[str], seed: int) -> list[list[str]]:
    """Returns the sentences in random order, five to a paragraph."""
    order = random.Random(seed).sample(sentences, len(sentences))
    size = SENTENCES_PER_PARAGRAPH
    return [order[i : i + size] for i in range(0, len(order) - size + 1, size)]


def measure_speeds(libraries: dict[str, Library], lines: list[str]) -> dict[str, dict[str, Any]]:
    """Returns megabytes per second of CPU time by name: the median of rounds that alternate.

    A slow library gets fewer lines, about a second's worth of them.
    """
    shares = {}
    for name, library in libraries.items():
        pilot = lines[:60]
        seconds = _seconds(library.split, pilot)
        shares[name] = lines[: max(60, int(len(pilot) * SECONDS_PER_TIMING / seconds))]
    sizes = {name: sum(len(x.encode()) for x in share) / 1e6 for name, share in shares.items()}
    rounds: dict[str, list[float]] = {name: [] for name in libraries}
    for _ in range(ROUNDS):
        for name, library in libraries.items():
            rounds[name].append(sizes[name] / _seconds(library.split, shares[name]))
    return {
        name: {"mb_per_s": statistics.median(speeds), "rounds": speeds, "mb": sizes[name]}
        for name, speeds in rounds.items()
    }


def _seconds(split: Splitter, lines: list[str]) -> float:
    started = time.process_time()
    for line in lines:
        split(line)
    return time.process_time() - started


def measure_behaviour(
    libraries: dict[str, Library], lines: list[str]
) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, float]]]:
    """Returns figures of the sentences by name, and the F1 of each pair's boundaries."""
    size = sum(len(line.encode()) for line in lines)
    figures, cuts = {}, {}
    for name, library in libraries.items():
        split = [[s for s in library.split(line) if s.strip()] for line in lines]
        sentences = [sentence for line in split for sentence in line]
        lengths = [len(sentence.split()) for sentence in sentences]
        after_cut = [sentence.lstrip() for line in split for sentence in line[1:]]
        figures[name] = {
            "sentences_per_mb": len(sentences) / size * 1e6,
            "words_per_sentence": statistics.mean(lengths),
            "shorter_than_3_words": sum(n < 3 for n in lengths) / len(lengths),
            "longer_than_60_words": sum(n > 60 for n in lengths) / len(lengths),
            # Of the cuts and not of all sentences, since some lines of the books begin lowercase.
            "cuts_before_lowercase": sum(s[0].islower() for s in after_cut) / len(after_cut),
            "lines_changed": statistics.mean(
                "".join("".join(parts).split()) != "".join(line.split())
                for line, parts in zip(lines, split, strict=True)
            ),
        }
        cuts[name] = {(i, cut) for i, parts in enumerate(split) for cut in boundaries(parts)}
    agreement = {
        a: {b: f1(len(cuts[a]), len(cuts[b]), len(cuts[a] & cuts[b])) for b in cuts if b != a}
        for a in cuts
    }
    return figures, agreement


def try_hard_cases(libraries: dict[str, Library]) -> dict[str, dict[str, Any]]:
    """Returns, for each case, what was expected and what each library made of it."""
    return {
        case: {
            "expected": text,
            "found": {
                name: " | ".join(s.strip() for s in library.split(text.replace(" | ", " ")))
                for name, library in libraries.items()
            },
        }
        for case, text in HARD_CASES.items()
    }


def describe_package(name: str) -> dict[str, Any]:
    """Returns version, licence, release month, dependencies and installed size with them."""
    found, todo = {}, [name]
    while todo:
        package = todo.pop()
        if package in found:
            continue
        try:
            found[package] = distribution(package)
        except PackageNotFoundError:
            continue  # needed on other systems or Pythons only
        needs = found[package].requires or []
        todo += [re.split(r"[^\w.-]", need)[0].lower() for need in needs if "extra ==" not in need]
    sizes = [
        sum(Path(str(p.locate())).stat().st_size for p in d.files or [] if p.locate().is_file())
        for d in found.values()
    ]
    metadata = found[name].metadata
    classifiers = [c for c in metadata.get_all("Classifier", []) if c.startswith("License")]
    named = [metadata.get("License-Expression"), metadata.get("License"), *classifiers]
    licence = next((x for x in named if x and x != "UNKNOWN"), "none in the metadata")
    return {
        "version": metadata["Version"],
        "released": RELEASED.get(name),
        "licence": licence.splitlines()[0].split(" :: ")[-1],
        "dependencies": len(found) - 1,
        "mb": sizes[0] / 1e6,
        "mb_with_dependencies": sum(sizes) / 1e6,
    }


def main() -> None:
    """Measures, prints the tables, writes results.json."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpus", type=Path, nargs="+", required=True)
    parser.add_argument("--glue", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    def training() -> str:
        return "\n".join(
            line
            for path in args.corpus
            for line in read_lines(path, SPEED_BYTES + BEHAVIOUR_BYTES, TRAINING_BYTES)
        )

    libraries = load_libraries(training)
    gold, fields = gold_sentences(args.glue)
    texts = {path.name.split(".")[0]: read_lines(path, 0, SPEED_BYTES) for path in args.corpus}
    results: dict[str, Any] = {
        "machine": machine.describe(),
        "packages": {
            library.package: describe_package(library.package)
            for name, library in libraries.items()
            if library.package and name != "bert_lamb"
        },
        "gold": {
            task: {
                "fields": fields[task],
                "sentences": len(gold[task]),
                "with_stop_and_capital_inside": sum(bool(INSIDE.search(s)) for s in gold[task]),
                "scores": {
                    name: measure_quality(x.split, make_paragraphs(gold[task], args.seed))
                    for name, x in libraries.items()
                },
            }
            for task in gold
        },
        "speed": {name: measure_speeds(libraries, lines) for name, lines in texts.items()},
        "behaviour": {},
        "agreement": {},
        "hard_cases": try_hard_cases(libraries),
    }
    for name, lines in texts.items():
        ends = accumulate(len(line.encode()) for line in lines)
        share = sum(end <= BEHAVIOUR_BYTES for end in ends)
        figures, agreement = measure_behaviour(libraries, lines[:share])
        results["behaviour"][name], results["agreement"][name] = figures, agreement
    print(make_tables(results))
    args.output.mkdir(parents=True, exist_ok=True)
    path = args.output / "results.json"
    path.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def make_tables(results: dict[str, Any]) -> str:
    """Returns the results as tables in Markdown, one row per library."""
    parts = []
    for task, x in results["gold"].items():
        head = ["boundaries, " + task, "precision", "recall", "F1", "paragraphs right"]
        rows = [[name, *map(_percent, scores.values())] for name, scores in x["scores"].items()]
        parts.append(_table(head, rows))
    for corpus, figures in results["behaviour"].items():
        head = [
            corpus,
            "MB/s",
            "sentences per MB",
            "words per sentence",
            "< 3 words",
            "> 60 words",
            "cuts before lowercase",
            "lines changed",
            "agreement with the others, F1",
        ]
        rows = []
        for name, x in figures.items():
            others = results["agreement"][corpus][name]
            # The two sides that share rules are measured by the rest only.
            shared = ("bert_lamb", "sentencex")
            agreement = statistics.mean(v for other, v in others.items() if other not in shared)
            rows.append(
                [
                    name,
                    f"{results['speed'][corpus][name]['mb_per_s']:.2f}",
                    f"{x['sentences_per_mb']:,.0f}",
                    f"{x['words_per_sentence']:.1f}",
                    *(_percent(x[key]) for key in list(x)[2:6]),
                    _percent(agreement),
                ]
            )
        parts.append(_table(head, rows))
    names = list(next(iter(results["hard_cases"].values()))["found"])
    cases = results["hard_cases"].items()
    rights = [[x["found"][name] == x["expected"] for name in names] for _, x in cases]
    rows = [
        [case, x["expected"], *("yes" if y else "no" for y in right)]
        for (case, x), right in zip(cases, rights, strict=True)
    ]
    rows.append([f"right of {len(rows)}", "", *(str(sum(r)) for r in zip(*rights, strict=True))])
    parts.append(_table(["hard case", "expected (boundaries are bars)", *names], rows))
    head = ["package", "version", "released", "licence", "dependencies", "MB", "MB with them"]
    rows = [
        [
            name,
            x["version"],
            x["released"] or "",
            x["licence"],
            str(x["dependencies"]),
            f"{x['mb']:.1f}",
            f"{x['mb_with_dependencies']:.1f}",
        ]
        for name, x in results["packages"].items()
    ]
    parts.append(_table(head, rows))
    return "\n".join(parts)


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    cells = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return "".join("| " + " | ".join(line) + " |\n" for line in cells)


if __name__ == "__main__":
    main()
