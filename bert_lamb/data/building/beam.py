"""The stages of a build on Apache Beam: on this machine, Dataflow, Flink or Spark.

Every stage is one pipeline of independent pieces, each leaving its result in a file of the build's
folder, so the bytes are those of a local build, and an interrupted build goes on. The folder, and
with it the output, must be one that all workers reach: gs:// on Dataflow.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from etils import epath

from bert_lamb.data.building.pool import Stage
from bert_lamb.data.building.storage import load_json, save_json
from bert_lamb.data.errors import DataError, KeptWorkError


class BeamExecutor:
    """Does the pieces of a stage as an Apache Beam pipeline; see pool.Executor.

    Attributes:
        options: command line options of the pipeline, such as --runner=DataflowRunner.

    Raises:
        DataError: if apache-beam is not installed, or does not know an option.
    """

    def __init__(self, options: Sequence[str] = ()) -> None:
        try:
            from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
            from apache_beam.runners.runner import create_runner
        except ImportError as error:
            raise DataError(
                "apache-beam is not installed; install bert-lamb[beam], or build with --workers"
            ) from error
        self.options = list(options)
        strange = [option for option in self.options if not option.startswith("--")]
        if strange:
            raise DataError(f"beam options: {' '.join(strange)}: expected --NAME=VALUE")
        try:
            name = PipelineOptions(self.options).view_as(StandardOptions).runner
            create_runner(name or "DirectRunner")
        except (ValueError, ImportError) as error:
            raise DataError(f"beam options: --runner: {error}") from error

    def run(
        self, stage: Stage[Any, Any], items: Sequence[Any], progress: Callable[[int], None]
    ) -> list[Any]:
        """Runs one pipeline over all pieces; the runner shows its own progress."""
        import apache_beam as beam
        from apache_beam.options.pipeline_options import PipelineOptions

        piece = _Piece(stage)
        with beam.Pipeline(options=PipelineOptions(self.options)) as pipeline:
            numbered = pipeline | beam.Create(list(enumerate(items)), reshuffle=True)
            numbered | beam.Map(piece.run)
        for number in range(len(items)):
            piece.raise_fault(number)
        return [stage.load(item) for item in items]


@dataclass(frozen=True)
class _Piece:
    """A piece of work whose fault, if it is one of the data, is put down rather than raised.

    A runner would try again, and hand back the message wrapped in many others.
    """

    stage: Stage[Any, Any]

    def run(self, numbered: tuple[int, Any]) -> None:
        number, item = numbered
        try:
            self.stage.run(item)
        except DataError as error:
            keeps_work = isinstance(error, KeptWorkError)
            save_json(self._file(number), {"message": str(error), "keeps_work": keeps_work})

    def raise_fault(self, number: int) -> None:
        if (fault := load_json(self._file(number))) is not None:
            self._file(number).unlink()  # not to be met again by the build that goes on
            raise (KeptWorkError if fault["keeps_work"] else DataError)(fault["message"])

    def _file(self, number: int) -> epath.Path:
        return epath.Path(self.stage.folder) / f"fault-{number:05d}.json"
