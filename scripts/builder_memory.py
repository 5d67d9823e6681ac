"""Measures the peak memory of the record builder on growing shares of a corpus.

    python scripts/builder_memory.py CORPUS.jsonl.xz [MORE.jsonl.xz ...]

Takes 10, 25, 50 and 100 MB of the text, builds records of each with two workers in a process of
its own, and prints megabytes of peak resident memory of that process and of its largest worker,
with the speed. The corpus has to hold 100 MB. Needs Linux: the main process's peak is VmHWM, since
what getrusage gives includes the peak of the process it was started from. For the workers there is
only getrusage, which then covers the main process's memory at the time they were started.
"""

import json
import lzma
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import machine

SIZES_MB = (10, 25, 50, 100)


def build(source: str, folder: str) -> None:
    """Runs in the measured process: a vocabulary from the first part, then the records."""
    from bert_lamb.data.building.build import build_records
    from bert_lamb.data.building.options import BuildOptions
    from bert_lamb.data.building.pool import local_executor
    from bert_lamb.data.corpus import open_sources
    from bert_lamb.data.examples import ExampleOptions
    from bert_lamb.data.tokenization import load_tokenizer

    started = time.perf_counter()
    tokenizer = load_tokenizer(Path(folder) / "vocab")
    with local_executor(2) as executor:
        build_records(
            open_sources([source]), Path(folder) / "records", tokenizer,
            BuildOptions(ExampleOptions()), executor=executor,
        )  # fmt: skip
    seconds = time.perf_counter() - started
    own = machine.peak_bytes() / 2**20
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(json.dumps({"main_mb": own, "worker_mb": largest, "seconds": seconds}))


def main(corpora: list[str]) -> None:
    """Prints a line for each size."""
    from bert_lamb.data.corpus import ReadStats, open_sources
    from bert_lamb.data.tokenization import train_wordpiece

    documents = (d for s in open_sources(corpora) for d in s.read(ReadStats()))
    texts = [next(documents).text for _ in range(200)]
    with tempfile.TemporaryDirectory() as top:
        vocab = Path(top) / "vocab"
        vocab.mkdir()
        train_wordpiece(texts, 8192).save(vocab)
        for size in SIZES_MB:
            folder = Path(top) / str(size)
            folder.mkdir()
            (folder / "vocab").symlink_to(vocab)
            source = folder / "text.jsonl"
            source.write_bytes(_take(corpora, size * 10**6))
            out = subprocess.run(
                [sys.executable, __file__, "--build", str(source), str(folder)],
                capture_output=True,
                text=True,
                check=True,
            )
            figures = json.loads(out.stdout)
            print(
                f"{size:4d} MB: main process {figures['main_mb']:.0f} MB, largest worker "
                f"{figures['worker_mb']:.0f} MB, {size / figures['seconds']:.2f} MB/s",
                flush=True,
            )


def _take(corpora: list[str], size: int) -> bytes:
    """Returns whole lines of the corpora, about `size` bytes of them."""
    lines, total = [], 0
    for corpus in corpora:
        with lzma.open(corpus) as stream:
            for line in stream:
                if total >= size:
                    return b"".join(lines)
                lines.append(line)
                total += len(line)
    if total < size:
        raise SystemExit(f"the corpus holds {total / 1e6:.0f} MB; {size / 1e6:.0f} are needed")
    return b"".join(lines)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--build"]:
        build(sys.argv[2], sys.argv[3])
    elif sys.argv[1:]:
        main(sys.argv[1:])
    else:
        raise SystemExit(__doc__)
