"""The tasks of GLUE, and tasks of one's own of the same form.

References:
    Wang et al., "GLUE" (arXiv 1804.07461), table 1 for texts, labels and metrics.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from bert_lamb.data.errors import DataError

ACCURACY, F1, MATTHEWS = "accuracy", "f1", "matthews_correlation"
PEARSON, SPEARMAN = "pearson", "spearman"
CLASS_METRICS = (ACCURACY, F1, MATTHEWS)
SCORE_METRICS = (PEARSON, SPEARMAN)
MEAN = "mean"


@dataclass(frozen=True)
class BareForm:
    """Files without a header, told apart from others by their number of fields.

    Attributes:
        fields: in each line.
        texts: numbers of the fields with the texts, from 0.
        label: number of the field with the label.
    """

    fields: int
    texts: tuple[int, ...]
    label: int


@dataclass(frozen=True)
class Task:
    """What a table holds and how predictions for it are scored.

    Attributes:
        name: as its benchmark writes it.
        texts: header names of the columns with the one text or the two.
        label: header name of the column with the label; a file without it is not labelled.
        labels: names of the classes as the files write them, in the order of the model's outputs;
            the second of two is the positive one for F1. None where a training file has yet to
            tell them. Empty for a regression.
        metrics: names of the published metrics.
        regression: whether labels are numbers instead of classes.
        limits: the lowest and the highest number a regression's label may be, None for any.
        id: header name of the column with the ids; where a file lacks it, rows are counted from 0.
        bare: how files without a header look, None where there are none.
        other_files: (split, file name) of splits that are not only called SPLIT.tsv.
    """

    name: str
    texts: tuple[str, ...]
    label: str
    labels: tuple[str, ...] | None
    metrics: tuple[str, ...]
    regression: bool = False
    limits: tuple[float, float] | None = None
    id: str = "index"
    bare: BareForm | None = None
    other_files: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        """Checks that the parts go together.

        Raises:
            DataError: naming the part that does not.
        """
        columns = (*self.texts, self.label)
        if len(self.texts) not in (1, 2):
            raise DataError(f"task {self.name}: {len(self.texts)} text columns, expected 1 or 2")
        if len({*columns, self.id}) <= len(columns):
            raise DataError(
                f"task {self.name}: the columns {', '.join(map(repr, (*columns, self.id)))} of "
                "texts, label and id must differ; name another one"
            )
        if self.labels is not None:
            self._check_labels(self.labels)
        known = SCORE_METRICS if self.regression else CLASS_METRICS
        wrong = [name for name in self.metrics if name not in known]
        if wrong or not self.metrics or len(set(self.metrics)) < len(self.metrics):
            kind = "a regression" if self.regression else "classes"
            raise DataError(
                f"task {self.name}: metrics {', '.join(wrong or self.metrics) or 'none'}: expected "
                f"for {kind} one or more of {', '.join(known)}, each once"
            )

    def _check_labels(self, labels: tuple[str, ...]) -> None:
        if self.regression:
            if labels:
                raise DataError(f"task {self.name}: a regression has no labels; leave them out")
            return
        if len(labels) < 2 or len(set(labels)) < len(labels):
            raise DataError(
                f"task {self.name}: labels {', '.join(map(repr, labels)) or 'none'}, expected two "
                "or more, each once"
            )
        if F1 in self.metrics and len(labels) != 2:
            raise DataError(
                f"task {self.name}: metric {F1} is that of two labels, and there are "
                f"{len(labels)}; use {ACCURACY} or {MATTHEWS}"
            )

    @property
    def outputs(self) -> int:
        """Outputs C of a model for this task: one per label, or a single number.

        Raises:
            DataError: if the labels are not known yet.
        """
        return 1 if self.regression else len(self.known_labels)

    @property
    def known_labels(self) -> tuple[str, ...]:
        """The labels.

        Raises:
            DataError: if they are not known yet.
        """
        if self.labels is None:
            raise DataError(
                f"task {self.name}: its labels are not known yet; read its training file first and "
                "use the task of that data set, or give the labels"
            )
        return self.labels

    @property
    def main_metric(self) -> str:
        """Name of the one number to compare models by: the only metric, or the mean of several."""
        return self.metrics[0] if len(self.metrics) == 1 else MEAN


_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_SENTENCES = ("sentence1", "sentence2")
# The order of labels is that of the Hugging Face data sets, so that exported heads agree.
_ALL = (
    Task("CoLA", ("sentence",), "label", _BINARY, (MATTHEWS,), bare=BareForm(4, (3,), 1)),
    Task("SST-2", ("sentence",), "label", _BINARY, (ACCURACY,)),
    Task("MRPC", ("#1 String", "#2 String"), "Quality", _BINARY, (ACCURACY, F1), other_files=(
        ("train", "msr_paraphrase_train.txt"), ("test", "msr_paraphrase_test.txt"))),
    Task("STS-B", _SENTENCES, "score", (), (PEARSON, SPEARMAN), regression=True, limits=(0.0, 5.0)),
    Task("QQP", ("question1", "question2"), "is_duplicate", _BINARY, (ACCURACY, F1), id="id"),
    Task("MNLI", _SENTENCES, "gold_label", ("entailment", "neutral", "contradiction"), (ACCURACY,),
         other_files=(("dev", "dev_matched.tsv"), ("test", "test_matched.tsv"))),
    Task("QNLI", ("question", "sentence"), "label", _ENTAILMENT, (ACCURACY,)),
    Task("RTE", _SENTENCES, "label", _ENTAILMENT, (ACCURACY,)),
    Task("WNLI", _SENTENCES, "label", _BINARY, (ACCURACY,)),
)  # fmt: skip
TASKS: Mapping[str, Task] = MappingProxyType({task.name: task for task in _ALL})


def find_task(name: str) -> Task:
    """Returns a task of GLUE by its name, whatever its case and hyphens.

    Raises:
        DataError: for another name; lists those there are.
    """
    wanted = re.sub(r"[-_ ]", "", name).lower()
    for task in _ALL:
        if task.name.replace("-", "").lower() == wanted:
            return task
    raise DataError(
        f"task {name!r}: expected one of {', '.join(TASKS)}; for a table of your own, name its "
        "columns of texts and label"
    )


def custom_task(
    texts: Sequence[str], label: str, *, name: str = "custom", labels: Sequence[str] | None = None,
    regression: bool = False, metrics: Sequence[str] | None = None, id: str = "index",
) -> Task:  # fmt: skip
    """Returns a task whose tables are TSV files with a header and one example a line.

    Args:
        texts: header names of the columns with the one text or the two.
        label: header name of the column with the label.
        name: to call it in messages.
        labels: names of the classes in the order of the model's outputs; None takes those of the
            training file, whole numbers by value and others by letters.
        regression: whether labels are numbers instead of classes.
        metrics: accuracy for classes, and Pearson's and Spearman's correlation for numbers, unless
            others are named.
        id: header name of the column with the ids, if there is one.

    Raises:
        DataError: if these do not go together.
    """
    if regression and labels:
        raise DataError(f"task {name}: a regression has no labels; leave them out")
    known = () if regression else None if labels is None else tuple(labels)
    if metrics is None:
        metrics = SCORE_METRICS if regression else (ACCURACY,)
    return Task(name, tuple(texts), label, known, tuple(metrics), regression=regression, id=id)
