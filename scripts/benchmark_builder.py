"""Speed and memory of `bert-lamb data build`, beside tokenization alone.

    python scripts/benchmark_builder.py --vocab vocab.txt --output docs/results/data_build TEXT...

Builds records of 128 and 512 tokens of the sources with all cores, each in a process of its own as
a user would, and writes results.json and the data reports. Memory is the largest sum of the
resident memory of the build's processes, looked at five times a second, and that of the largest.

Tokenization alone, for comparison, takes the same sentences, already in memory: by this package in
as many processes, and by the Rust library `tokenizers` in as many threads. The sides take turns;
medians of the rounds.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import machine
import tokenizers

from bert_lamb.data.corpus import ReadStats, open_sources
from bert_lamb.data.sentences import split_sentences
from bert_lamb.data.tokenization import load_tokenizer

LENGTHS = (128, 512)
_POLL_SECONDS = 0.2
_BLOCK_CHARS = 1 << 20


def build(sources: list[str], vocab: str, output: Path, length: int) -> dict[str, Any]:
    """Runs the command and watches its processes."""
    options = [f"--source={source}" for source in sources]
    command = [sys.executable, "-m", "bert_lamb.cli", "data", "build", *options, "--vocab", vocab,
               "--seq-length", str(length), "--output", str(output)]  # fmt: skip
    before = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    together = largest = 0
    while process.poll() is None:
        sizes = [_resident_bytes(pid) for pid in _processes_of(process.pid)]
        together, largest = max(together, sum(sizes)), max(largest, *sizes, 0)
        time.sleep(_POLL_SECONDS)
    seconds = time.perf_counter() - before
    if process.returncode:
        raise SystemExit(f"the build failed: {' '.join(command)}")
    return {"seconds": seconds, "all_processes_mb": together / 1e6, "largest_mb": largest / 1e6}


def _processes_of(leader: int) -> list[int]:
    """Returns the processes that a leader has started, and itself, by Linux's /proc."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.getsid(int(entry.name)) == leader:
                found.append(int(entry.name))
        except ProcessLookupError:
            continue
    return found


def _resident_bytes(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def blocks_of_sentences(sources: list[str]) -> tuple[list[list[str]], int]:
    """Returns the sentences of the sources in blocks, and the bytes of their text."""
    blocks: list[list[str]] = [[]]
    chars = size = 0
    for source in open_sources(sources):
        for document in source.read(ReadStats()):
            blocks[-1] += split_sentences(document.text)
            chars += len(document.text)
            size += len(document.text.encode())
            if chars > _BLOCK_CHARS:
                blocks.append([])
                chars = 0
    return blocks, size


_tokenizer = None  # of a worker process


def _start(vocab: str) -> None:
    global _tokenizer
    _tokenizer = load_tokenizer(vocab)


def _encode(block: list[str]) -> int:
    assert _tokenizer is not None
    return len(_tokenizer.encode_flat(block).ids)


def tokenization_alone(
    blocks: list[list[str]], vocab: str, rounds: int
) -> dict[str, dict[str, float]]:
    """Times this package's tokenizer and the Rust library in turns; both must give as many ids."""
    library = tokenizers.BertWordPieceTokenizer(vocab)
    times: dict[str, list[float]] = {"ours": [], "library": []}
    for _ in range(rounds):
        context = multiprocessing.get_context("fork")  # the sentences need not be sent
        with context.Pool(os.cpu_count(), _start, (vocab,)) as pool:
            pool.map(_encode, [[]] * 16)
            before = time.perf_counter()
            ours = sum(pool.imap_unordered(_encode, blocks))
            times["ours"].append(time.perf_counter() - before)
        before = time.perf_counter()
        theirs = 0
        for block in blocks:
            encoded = library.encode_batch(block, add_special_tokens=False)
            theirs += sum(len(e) for e in encoded)
        times["library"].append(time.perf_counter() - before)
        if abs(ours - theirs) > 1e-3 * ours:
            raise SystemExit(f"{ours} ids by this package, {theirs} by the library")
    return {name: {"seconds": statistics.median(found)} for name, found in times.items()}


def main() -> None:
    """Measures, prints and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sources", nargs="+")
    parser.add_argument("--vocab", required=True, help="a vocab.txt, uncased")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    runs: dict[int, list[dict[str, Any]]] = {length: [] for length in LENGTHS}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(args.rounds):
            for length in LENGTHS:
                made = Path(folder, str(length))
                shutil.rmtree(made, ignore_errors=True)
                runs[length].append(build(args.sources, args.vocab, made, length))
                print(length, runs[length][-1], flush=True)
                report = args.output / f"data_report_{length}.json"
                shutil.copy(made / "data_report.json", report)
    blocks, size = blocks_of_sentences(args.sources)
    alone = tokenization_alone(blocks, args.vocab, args.rounds)
    results: dict[str, Any] = {"machine": machine.describe(), "text_mb": size / 1e6, "build": {}}
    for length, found in runs.items():
        seconds = statistics.median(run["seconds"] for run in found)
        results["build"][length] = {
            "seconds": seconds,
            "mb_per_second": size / 1e6 / seconds,
            "all_processes_mb": max(run["all_processes_mb"] for run in found),
            "largest_mb": max(run["largest_mb"] for run in found),
            "times_tokenization_alone": seconds / alone["ours"]["seconds"],
            "times_library_alone": seconds / alone["library"]["seconds"],
        }
    for side in alone.values():
        side["mb_per_second"] = size / 1e6 / side["seconds"]
    results["tokenization_alone"] = alone
    print(json.dumps(results, indent=1))
    (args.output / "results.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
