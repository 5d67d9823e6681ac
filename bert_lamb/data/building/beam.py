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
from bert_lamb.data.errors import DataError


class BeamExecutor:
    """Does the pieces of a stage as an Apache Beam pipeline; see pool.Executor.

    Attributes:
        options: command line options of the pipeline, such as --runner=DataflowRunner.

    Raises:
        DataError: if apache-beam is not installed, or does not know an option.
    """

    def __init__(self, options: Sequence[str] = ()) -> None:
        try:
            import apache_beam  # noqa: F401
        except ImportError as error:
            raise DataError(
                "apache-beam is not installed; install bert-lamb[beam], or build with --workers"
            ) from error
        from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

        self.options = list(options)
        known = PipelineOptions(self.options)
        unknown = [o for o in self.options if not o.startswith("--")]
        if unknown:
            raise DataError(f"beam options: {' '.join(unknown)}: expected --NAME=VALUE")
        from apache_beam.runners import runner

        try:
            runner.create_runner(known.view_as(StandardOptions).runner or "DirectRunner")
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
            save_json(self._file(number), {"message": str(error)})

    def raise_fault(self, number: int) -> None:
        if (fault := load_json(self._file(number))) is not None:
            raise DataError(fault["message"])

    def _file(self, number: int) -> epath.Path:
        return epath.Path(self.stage.folder) / f"fault-{number:05d}.json"
