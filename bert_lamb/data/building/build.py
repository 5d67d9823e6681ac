"""Builds record sets: documents in, shards, manifest and report out.

Three stages, each of many pieces of work that depend on nothing but their arguments: gather reads
the sources, make turns blocks of text into packed examples, deal writes the shards. So the bytes
depend on text and options only, not on who works on them, and an interrupted build goes on.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

import numpy as np
from etils import epath

from bert_lamb.data.building.deal import Deal, Index
from bert_lamb.data.building.duplicates import ExampleDuplicates
from bert_lamb.data.building.gather import Gather, Gathered, units
from bert_lamb.data.building.make import HELDOUT, TRAIN, Make, Part, Task
from bert_lamb.data.building.options import BuildOptions, fingerprint
from bert_lamb.data.building.plan import choose_donors, plan
from bert_lamb.data.building.pool import Executor, InProcess
from bert_lamb.data.building.report import REPORT_FILE, Counts, DataReport, SourceReport
from bert_lamb.data.building.workplace import Workplace, workplace
from bert_lamb.data.corpus import Source
from bert_lamb.data.errors import DataError
from bert_lamb.data.records.format import id_dtype
from bert_lamb.data.records.manifest import (
    FORMAT_VERSION,
    Manifest,
    Shard,
    write_json,
    write_manifest,
)
from bert_lamb.data.tokenization import Tokenizer


@dataclass(frozen=True)
class Progress:
    """How far a build is.

    Attributes:
        stage: "read", "make" or "write".
        done: bytes of text read, characters made into examples, or bytes of examples written.
        total: the same in all; 0 while it is not known.
    """

    stage: str
    done: int
    total: int


def build_records(
    sources: Sequence[Source],
    output: str | Path,
    tokenizer: Tokenizer,
    options: BuildOptions,
    *,
    executor: Executor | None = None,
    overwrite: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> dict[str, Manifest]:
    """Makes one record set, or one to train on and one held out.

    What is done waits in a hidden folder beside `output` (inside of a remote one), which becomes
    `output` at the end. A build that was killed or ran out of something goes on from there when it
    is started again; one that met a fault in its text leaves nothing behind.

    Args:
        sources: from corpus.open_sources, which also says what happens to faulty text.
        output: directory to make, local or remote. Without `options.heldout` it is a record set
            itself; with it, its folders "train" and "heldout" are.
        tokenizer: saved with the records.
        options: everything else that decides the bytes.
        executor: who does the work; by default this process. See pool and beam.
        overwrite: replace `output` if it is a complete earlier build.
        progress: called now and then.

    Returns:
        The manifest of each record set by its directory.

    Raises:
        DataError: for an impossible argument, faulty or too little text, an existing `output`, or
            a worker that died.
    """
    executor = executor or InProcess()
    identity = fingerprint(sources, tokenizer, options)
    with workplace(str(output), overwrite, identity) as place:
        build = _Build(sources, tokenizer, options, place, executor, progress or (lambda _: None))
        manifests = build.run()
        place.finish(overwrite)
    return {str(Path(output) / name) if "://" not in str(output) else f"{output}/{name}": manifest
            for name, manifest in manifests.items()}  # fmt: skip


@dataclass(frozen=True)
class _Build:
    """A build under way."""

    sources: Sequence[Source]
    tokenizer: Tokenizer
    options: BuildOptions
    place: Workplace
    executor: Executor
    progress: Callable[[Progress], None]

    def run(self) -> dict[str, Manifest]:
        """Does the stages; returns the manifest of each record set by its folder."""
        readable = units(self.sources)
        gather = Gather(
            str(self.place.folder / "texts"),
            self.options.excluded_titles,
            self.options.block_chars,
        )
        gathered: list[Gathered] = self.executor.run(
            gather, readable, lambda done: self.progress(Progress("read", done, 0))
        )
        tasks, reports = plan(self.sources, readable, gathered, self.options)
        tokenizer = self.place.folder / "tokenizer"
        tokenizer.mkdir(exist_ok=True)
        self.tokenizer.save(tokenizer)
        donors = choose_donors(tasks, readable, gathered)
        make = Make(
            str(self.place.folder / "parts"),
            str(tokenizer),
            self.tokenizer.hash,
            self.options,
            donors,
        )
        chars = sum(task.block.chars for task in tasks)
        made: list[dict[str, Part]] = self.executor.run(
            make, tasks, lambda done: self.progress(Progress("make", done, chars))
        )
        report = self._report(reports, gathered)
        names = (TRAIN, HELDOUT) if self.options.heldout else (TRAIN,)
        return {
            name if self.options.heldout else "": self._write(
                name, tasks, [parts[name] for parts in made], report
            )
            for name in names
        }

    def _write(
        self,
        name: str,
        tasks: Sequence[Task],
        parts: Sequence[Part],
        report: DataReport,
    ) -> Manifest:
        """Writes a record set; `report` says what was read."""
        sizes = [part.counts.examples for part in parts]
        if not sum(sizes):
            raise DataError(
                f"no example for the record set {name!r}: its documents hold too few tokens, or "
                "the weights of the sources picked none of them; check the sources and --weight"
            )
        folder = self.place.result / name if self.options.heldout else self.place.result
        folder.mkdir(exist_ok=True)
        num_shards = self.options.num_shards
        firsts = accumulate(sizes, initial=0)
        dealing = self.place.folder / "shards"
        used = tuple(
            (part.file, first) for part, first in zip(parts, firsts, strict=False) if part.file
        )
        Index(used, num_shards).save(dealing / f"{name}.json")
        total = sum(part.bytes for part in parts)
        shards: list[Shard] = self.executor.run(
            Deal(str(dealing), name, str(folder)),
            range(num_shards),
            lambda done: self.progress(Progress("write", done, total)),
        )
        for file in (self.place.folder / "tokenizer").iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
        report = _with_counts(report, tasks, parts)
        manifest = self._manifest(parts, shards, report)
        write_json(folder / REPORT_FILE, report.to_dict())
        write_manifest(folder, manifest)
        return manifest

    def _report(self, reports: Sequence[SourceReport], gathered: Sequence[Gathered]) -> DataReport:
        """Returns the report on what was read, without counts of what was made."""
        return DataReport(
            sources=tuple(reports),
            kind=self.options.examples.kind,
            copies=self.options.copies,
            seq_length=self.options.examples.seq_length,
            duplicates=0,
            duplicates_share=1.0,
            special_ids=self.tokenizer.special_tokens,
            titles=len(self.options.excluded_titles),
            titles_found=len({title for found in gathered for title in found.titles_found}),
        )

    def _manifest(
        self, parts: Sequence[Part], shards: Sequence[Shard], report: DataReport
    ) -> Manifest:
        counts = report.counts
        named = ("name", "documents", "bytes", "sha256")
        return Manifest(
            format_version=FORMAT_VERSION,
            seq_length=report.seq_length,
            vocab_size=self.tokenizer.vocab_size,
            max_token_id=max(part.max_token_id for part in parts),
            tokenizer_hash=self.tokenizer.hash,
            id_dtype=id_dtype(self.tokenizer.vocab_size).name,
            num_examples=counts.examples,
            shards=tuple(shards),
            num_random_next=counts.label_ones,
            seed=self.options.seed,
            sources=tuple({k: getattr(s, k) for k in named} for s in report.sources),
            options=self.options.to_dict(),
            report=report.to_dict(),
        )


def _with_counts(report: DataReport, tasks: Sequence[Task], parts: Sequence[Part]) -> DataReport:
    """Adds what became of the text of one record set to the report on what was read."""
    duplicates = ExampleDuplicates()
    by_source = [Counts() for _ in report.sources]
    for task, part in zip(tasks, parts, strict=True):
        by_source[task.source].add(part.counts)
        if part.hashes:
            duplicates.add(np.frombuffer(epath.Path(part.hashes).read_bytes(), "<u8"))
    return replace(
        report,
        sources=tuple(
            replace(source, counts=counts)
            for source, counts in zip(report.sources, by_source, strict=True)
        ),
        duplicates=duplicates.duplicates,
        duplicates_share=duplicates.share,
    )
