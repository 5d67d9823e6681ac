"""Builds record sets: documents in, shards, manifest and report out.

The corpus is read twice: once to count and hash it and to meet its faults before any work is done,
once to stream it in chunks through a pool of processes. Results are written in the order of the
chunks, so the bytes depend on the arguments only, not on the number of workers.
"""

import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bert_lamb.data.building.census import Census
from bert_lamb.data.building.chunks import chunks
from bert_lamb.data.building.report import REPORT_FILE, Counts, DataReport, DuplicateCounter
from bert_lamb.data.building.worker import Outcome, Recipe, work
from bert_lamb.data.corpus import Source
from bert_lamb.data.errors import DataError
from bert_lamb.data.examples.pairs import check_seq_length
from bert_lamb.data.records.format import id_dtype
from bert_lamb.data.records.manifest import (
    FORMAT_VERSION,
    MANIFEST_FILE,
    Manifest,
    write_json,
    write_manifest,
)
from bert_lamb.data.records.shards import ShardWriter
from bert_lamb.data.tokenization import Tokenizer


@dataclass(frozen=True)
class Progress:
    """How far a build is.

    Attributes:
        stage: "count" for the first pass, "build" for the second.
        done: characters of text read ("count") or made into examples ("build").
        total: characters in all; 0 while they are not known.
        examples: examples written.
    """

    stage: str
    done: int
    total: int
    examples: int


def build_records(
    sources: Sequence[Source],
    output: str | Path,
    tokenizer: Tokenizer,
    seq_length: int,
    *,
    seed: int = 0,
    workers: int = 1,
    num_shards: int = 8,
    heldout: float = 0.0,
    copies: int = 1,
    overwrite: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> dict[str, Manifest]:
    """Makes one record set, or one to train on and one held out.

    Nothing is left behind on failure: everything is written beside `output` under a hidden name
    that becomes `output` at the end.

    Args:
        sources: from corpus.open_sources, which also says what happens to faulty text.
        output: local directory to make. Without `heldout` it is a record set itself; with it, its
            folders "train" and "heldout" are.
        tokenizer: saved with the records.
        seq_length: tokens per row T, special tokens included.
        seed: of all random choices.
        workers: processes; 1 works in this one. Any number gives the same bytes. The calling
            script needs the usual `if __name__ == "__main__"` guard when there are several.
        num_shards: files per record set.
        heldout: share of the documents of each source, the last ones, to hold out.
        copies: times to go through each document with other random choices (Google's dupe factor).
            Masks differ between the copies in any case, as they are drawn while training. Copies
            follow one another within each chunk and are dealt over all shards; training shuffles
            over the whole set, so their neighbourhood does not matter.
        overwrite: replace `output` if it is a complete earlier build.
        progress: called after every document counted and every chunk written.

    Returns:
        The manifest of each record set by its directory.

    Raises:
        DataError: for an impossible argument, faulty or too little text, an existing `output`, or
            a worker that died.
    """
    check_seq_length(seq_length)
    for key, value in (("workers", workers), ("num_shards", num_shards), ("copies", copies)):
        if value < 1:
            raise DataError(f"{key} = {value}: expected at least 1")
    if not 0 <= heldout < 1:
        raise DataError(f"heldout = {heldout}: expected a share in [0, 1)")
    target = _check_output(output, overwrite)
    report_progress = progress or (lambda _: None)
    census = Census.take(
        sources, heldout, lambda chars: report_progress(Progress("count", chars, 0, 0))
    )

    target.parent.mkdir(parents=True, exist_ok=True)
    stage = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        stage.chmod(0o755)
        names = ("train", "heldout") if heldout else ("",)
        sets = [_RecordSet(stage / name, tokenizer, num_shards) for name in names]
        units = chunks(census.documents(sources), census.donors)
        recipe = Recipe(tokenizer, seq_length, seed, copies)
        done = 0
        for outcome in work(units, recipe, sets[0].directory, workers):
            sets[outcome.heldout].write(outcome)
            done += outcome.chars
            written = sum(s.counts.examples for s in sets)
            report_progress(Progress("build", done, census.chars, written))
        manifests = [
            s.finish(recipe, census, {"num_shards": num_shards, "heldout": heldout}) for s in sets
        ]
        _move(stage, target)
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    return {str(target / name): m for name, m in zip(names, manifests, strict=True)}


def _check_output(output: str | Path, overwrite: bool) -> Path:
    if "://" in str(output):
        raise DataError(
            f"output {str(output)!r}: records are made in a local directory; build there and copy "
            "the directory, for example with `gcloud storage cp -r`"
        )
    if not str(output):
        raise DataError("output '': empty; name a directory to make")
    target = Path(output)
    if target.is_symlink() and not target.exists():
        raise DataError(f"output {str(output)!r}: a link to nowhere; name another directory")
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return target
    if not any((target / name / MANIFEST_FILE).exists() for name in ("", "train")):
        raise DataError(
            f"output {str(output)!r}: exists and is not a record set; name another directory"
        )
    if not overwrite:
        raise DataError(
            f"output {str(output)!r}: holds records already; name another directory, or ask to "
            "overwrite (--overwrite)"
        )
    foreign = [str(path) for path in _foreign_files(target)]
    if foreign:
        raise DataError(
            f"output {str(output)!r}: holds files that no build made: {', '.join(foreign[:5])}; "
            "move them away, or name another directory"
        )
    return target


def _foreign_files(target: Path) -> list[Path]:
    """Returns what would be lost if the record sets in `target` were replaced."""
    made = re.compile(r"manifest\.json|data_report\.json|tokenizer\.json|vocab\.txt|pairs-.*")
    inside = [path for path in target.iterdir() if path.name not in ("train", "heldout")]
    for name in ("train", "heldout"):
        inside += (target / name).iterdir() if (target / name).is_dir() else ()
    return [path for path in inside if not made.fullmatch(path.name) or path.is_dir()]


def _move(stage: Path, target: Path) -> None:
    """Puts `stage` in the place of `target`; an earlier build goes only once this one stands."""
    if not target.exists():
        stage.rename(target)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
    target.rename(old)
    try:
        stage.rename(target)
    except OSError:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


class _RecordSet:
    """A record set in the making."""

    def __init__(self, directory: Path, tokenizer: Tokenizer, num_shards: int) -> None:
        directory.mkdir(exist_ok=True)
        tokenizer.save(directory)
        self.directory = directory
        self.counts = Counts()
        self._shards = ShardWriter(directory, num_shards)
        self._duplicates = DuplicateCounter()
        self._max_token_id = 0

    def write(self, outcome: Outcome) -> None:
        for record in outcome.records:
            self._shards.write(record)
        self.counts.add(outcome.counts)
        self._duplicates.add(outcome.hashes)
        self._max_token_id = max(self._max_token_id, outcome.max_token_id)

    def finish(self, recipe: Recipe, census: Census, options: dict[str, object]) -> Manifest:
        """Closes the shards and writes report and manifest."""
        shards = self._shards.close()
        if not self.counts.examples:
            raise DataError("no document holds a token, so there is no example; check the sources")
        report = DataReport(
            sources=census.sources,
            counts=self.counts,
            copies=recipe.copies,
            seq_length=recipe.seq_length,
            duplicates=self._duplicates.duplicates,
            duplicates_share=self._duplicates.share,
        ).to_dict()
        named = ("name", "documents", "bytes", "sha256")
        manifest = Manifest(
            format_version=FORMAT_VERSION,
            seq_length=recipe.seq_length,
            vocab_size=recipe.tokenizer.vocab_size,
            max_token_id=self._max_token_id,
            tokenizer_hash=recipe.tokenizer.hash,
            id_dtype=id_dtype(recipe.tokenizer.vocab_size).name,
            num_examples=self.counts.examples,
            shards=shards,
            num_random_next=self.counts.random_next,
            seed=recipe.seed,
            sources=tuple({k: getattr(s, k) for k in named} for s in census.sources),
            options={"copies": recipe.copies, **options},
            report=report,
        )
        write_json(self.directory / REPORT_FILE, report)
        write_manifest(self.directory, manifest)
        return manifest
