"""Tables are read strictly: what a field holds is kept, and what is wrong is named."""

import bz2
import gzip
import lzma
import subprocess
import sys
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from bert_lamb.data.errors import DataError
from bert_lamb.glue.reading import find_file, read_dataset
from bert_lamb.glue.tasks import custom_task, find_task

COLA, SST2, MRPC = find_task("CoLA"), find_task("SST-2"), find_task("MRPC")
RTE, STSB = find_task("RTE"), find_task("STS-B")
MRPC_HEADER = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
RTE_HEADER = "index\tsentence1\tsentence2\tlabel"
STSB_HEADER = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2"


def test_texts_labels_and_ids_are_those_of_the_columns(write):
    data = read_dataset(write(
        RTE_HEADER, "7\tIt rains.\tIt is wet.\tentailment", "9\tIt\tis dry\tnot_entailment",
    ), RTE)  # fmt: skip
    assert data.texts == ("It rains.", "It")
    assert data.pairs == ("It is wet.", "is dry")
    assert data.ids == ("7", "9")
    assert data.labels.tolist() == [0, 1]
    assert data.labels.dtype == np.int32
    assert not data.labels.flags.writeable
    assert len(data) == 2
    assert data.describe().splitlines() == [
        "RTE: 2 examples of two texts",
        "labels: entailment 1 (50.0%), not_entailment 1 (50.0%)",
    ]


def test_columns_may_stand_in_any_order_with_others_between(write):
    data = read_dataset(write("label\tx\tsentence", "1\t?\tgood"), SST2)
    assert (data.texts, data.labels.tolist(), data.ids) == (("good",), [1], ("0",))


def test_cola_has_no_header_but_in_its_test_set(write):
    data = read_dataset(write("gj04\t1\t\tWe sail.", "cj99\t0\t*\tSail we of."), COLA)
    assert (data.texts, data.labels.tolist()) == (("We sail.", "Sail we of."), [1, 0])
    assert data.ids == ("0", "1")
    test = read_dataset(write("index\tsentence", "0\tBill ate."), COLA)
    assert (test.texts, test.labels, test.ids) == (("Bill ate.",), None, ("0",))
    headed = read_dataset(write("sentence\tlabel", "Bill ate.\t1"), COLA)
    assert (headed.texts, headed.labels.tolist()) == (("Bill ate.",), [1])
    with pytest.raises(DataError, match=r"line 1: label 'label', expected one of '0', '1'"):
        read_dataset(write("source\tlabel\tmark\ttext", "gj04\t1\t\tWe sail."), COLA)


def test_quotation_marks_are_letters(write):
    data = read_dataset(write(
        MRPC_HEADER, '1\t1\t2\t" One side\tThe other " side', "0\t3\t4\tplain\t\"''\"",
    ), MRPC)  # fmt: skip
    assert data.texts == ('" One side', "plain")
    assert data.pairs == ('The other " side', "\"''\"")


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("last", [True, False])
def test_byte_order_marks_line_ends_and_a_missing_last_one_change_nothing(write, mark, end, last):
    lines = [b"sentence\tlabel", b"good\t1", b"\t0", "caf\u00e9\u0085\u2028\x0b \t0".encode()]
    data = read_dataset(write(mark + end.join(lines) + end * last), SST2)
    assert data.texts == ("good", "", "caf\u00e9\u0085\u2028\x0b ")
    assert data.labels.tolist() == [1, 0, 0]
    bare = read_dataset(write(mark + b"a\t1\t\ttext" + end * last), COLA)
    assert bare.texts == ("text",)


def test_empty_texts_are_kept_and_counted(write):
    data = read_dataset(write(RTE_HEADER, "a\t\tx\tentailment", "b\tx\t \tentailment",
                              "c\tx\ty\tentailment"), RTE)  # fmt: skip
    assert data.blank == ("a", "b")
    assert "2 examples with an empty text: a, b" in data.describe()


def test_numbers_are_labels_of_a_regression(write):
    header = f"{STSB_HEADER}\tscore"
    rows = [f"{n}\tmain\tf\t2012\t{n}\tnone\tnone\tA plane.\tA jet.\t{score}"
            for n, score in enumerate(("5.000", "0", "3.8"))]  # fmt: skip
    data = read_dataset(write(header, *rows), STSB)
    assert data.labels.dtype == np.float32
    assert data.labels.tolist() == [5.0, 0.0, np.float32(3.8)]
    values = np.array([5.0, 0.0, 3.8])
    assert data.describe().splitlines()[1] == (
        f"labels from 0 to 5, mean {values.mean():.3f}, standard deviation {values.std():.3f}"
    )
    test = read_dataset(write(STSB_HEADER, rows[0].rpartition("\t")[0]), STSB)
    assert test.labels is None
    assert test.describe() == "STS-B: 1 examples of two texts\nnot labelled"
    for score in ("5.01", "-1", "nan", "inf", "1_0", "", "x", "\u0663", "1,5"):
        faulty = write(header, rows[0].rpartition("\t")[0] + f"\t{score}")
        with pytest.raises(DataError, match=r"line 2: label .*, expected a number from 0 to 5"):
            read_dataset(faulty, STSB)
    degree = custom_task(["a"], "degree", regression=True)
    assert read_dataset(write("a\tdegree", "x\t-1e3"), degree).labels.tolist() == [-1000.0]
    for score in ("1e39", "-1e999", "NaN"):
        with pytest.raises(DataError, match=r"expected a finite number"):
            read_dataset(write("a\tdegree", f"x\t{score}"), degree)


def test_files_without_labels_can_be_read_but_not_scored(write):
    data = read_dataset(write("index\tsentence", "0\tfine", "1\t"), SST2)
    assert data.labels is None
    assert data.texts == ("fine", "")
    with pytest.raises(
        DataError, match=r"data\.tsv: no column 'label' with labels.* it has 'index', 'sentence';"
    ):
        data.require_labels()


@pytest.mark.parametrize(
    ("names", "order"),
    [
        (["b", "a", "b", "C"], ("C", "a", "b")),
        (["10", "9", "-1", "9"], ("-1", "9", "10")),
        (["10", "9", "x"], ("10", "9", "x")),
        (["1.0", "0.0"], ("0.0", "1.0")),
    ],
)
def test_labels_are_found_in_the_training_file_and_hold_for_the_others(
    write, pair_task, names, order
):
    lines = [f"x\t{name}\ty" for name in names]
    for some in (lines, lines[::-1]):  # their order in the file does not matter
        data = read_dataset(write("a\tgold\tb", *some), pair_task)
        assert data.task.labels == order
        found = [data.task.labels[n] for n in data.labels]
        assert found == [line.split("\t")[1] for line in some]
    again = read_dataset(write("gold\tb\ta", f"{order[1]}\ty\tx"), data.task)
    assert (again.texts, again.pairs, again.labels.tolist()) == (("x",), ("y",), [1])
    with pytest.raises(DataError, match=r"line 2: label 'new', expected one of"):
        read_dataset(write("gold\tb\ta", "new\ty\tx"), data.task)


def test_a_column_that_holds_no_classes_is_refused(write):
    task = custom_task(["a"], "gold")
    with pytest.raises(DataError, match="label 'x' in every line, expected two labels or more"):
        read_dataset(write("a\tgold", "t\tx", "t\tx"), task)
    numbers = [f"t\t{n / 7}" for n in range(30)]
    with pytest.raises(DataError, match=r"30 labels in 30 examples, which are no classes \('0\.0'"):
        read_dataset(write("a\tgold", *numbers), task)
    assert read_dataset(write("a\tgold", *numbers, *numbers), task).task.outputs == 30
    for bad in ("", " x", "x "):
        with pytest.raises(DataError, match=r"line 3: label .*, expected one of 'x'"):
            read_dataset(write("a\tgold", "t\tx", f"t\t{bad}"), task)


@pytest.mark.parametrize(
    ("task", "lines", "message"),
    [
        (SST2, [], "data.tsv: empty; expected a table of SST-2"),
        (SST2, ["sentence\tlabel"], "data.tsv: a header but no example that can be used"),
        (SST2, ["text\tlabel", "x\t1"], "line 1: no column 'sentence', expected a header of SST-2;"
         " it has 'text', 'label'; check"),
        (RTE, ["a\tb\tlabel", "x\ty\t1"], "no column 'sentence1' nor 'sentence2'"),
        (COLA, ["gj04\t1\tWe sail."], "no column 'sentence', expected a header of CoLA, or 4 "
         "fields and no header; it has 'gj04', '1', 'We sail.'"),
        (SST2, ["sentence\tsentence\tlabel", "x\ty\t1"], "2 columns 'sentence', expected one"),
        (SST2, ["sentence\tlabel\tlabel", "x\t1\t1"], "2 columns 'label', expected one"),
        (SST2, ["sentence\tlabel", "x\t1", "x\ty\t1"], "data.tsv, line 3: 3 fields, expected 2 "
         "between tabs ('sentence', 'label'); mend the line"),
        (SST2, ["sentence\tlabel", "x\t1", ""], "line 3: 1 fields, expected 2"),
        (COLA, ["a\t1\t\tx", "a\t1\tx"], "line 2: 3 fields, expected 4 between tabs; mend"),
        (SST2, ["sentence\tlabel", "x\tpositive"], "line 2: label 'positive', expected one of '0', "
         "'1'; mend"),
        (SST2, ["sentence\tlabel", "x\t"], "line 2: label '', expected one of '0', '1'"),
        (SST2, ["sentence\tlabel", "x\t1 "], "line 2: label '1 ', expected"),
        (RTE, [RTE_HEADER, "0\tx\ty\tneutral"], "label 'neutral', expected one of 'entailment', "
         "'not_entailment'"),
        (SST2, ["sentence\tlabel", b"x\xff\t1\n"], "line 2: byte 1: ff is not UTF-8 (invalid"),
        (SST2, ["sentence\tlabel".encode("utf-16")], "line 1: byte 0: ff is not UTF-8 (invalid "
         "start byte); convert the file"),
        (SST2, [b"sentence\tlabel\rx\t1\r"], "carriage returns among the names of "
         "columns ('sentence', 'label\\rx', '1'); end lines with line feeds"),
    ],
)  # fmt: skip
def test_faults_name_the_line_what_was_found_and_what_was_expected(write, task, lines, message):
    with pytest.raises(DataError) as caught:
        read_dataset(write(*lines), task)
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_faulty_lines_can_be_left_out_and_are_counted(write):
    path = write("sentence\tlabel", "x\t1", "y", b"\xff\t1\n", "z\t2", "w\t0")
    data = read_dataset(path, SST2, skip_faulty=True)
    assert (data.texts, data.labels.tolist(), data.ids) == (("x", "w"), [1, 0], ("0", "1"))
    assert [fault.partition(":")[0] for fault in data.faults] == ["line 3", "line 4", "line 5"]
    assert "3 lines left out: line 3: 1 fields, expected 2" in data.describe()
    with pytest.raises(DataError, match="no example that can be used; first fault: line 2: 1 fie"):
        read_dataset(write("sentence\tlabel", "y"), SST2, skip_faulty=True)


def test_examples_of_another_set_can_be_taken_out(write):
    train = read_dataset(
        write(MRPC_HEADER, "1\t1\t2\tx\ty", "0\t1\t3\tx\tz", "1\t1\t2\tx\ty"), MRPC
    )
    dev = read_dataset(write(MRPC_HEADER, "0\t8\t9\tx\ty", name="dev.tsv"), MRPC)
    left = train.without(dev)
    assert (left.texts, left.pairs, left.labels.tolist()) == (("x",), ("z",), [0])
    assert left.ids == ("1",)
    assert "2 examples left out" in left.describe()
    assert left.without(dev) is left
    with pytest.raises(DataError, match=r"all of its 1 examples are also in .*data\.tsv"):
        dev.without(train)


@pytest.mark.parametrize(("ending", "pack"), [
    (".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress),
])  # fmt: skip
def test_packed_files_are_read_and_damaged_ones_named(write, ending, pack):
    packed = pack(b"sentence\tlabel\ngood\t1\n" * 1)
    assert read_dataset(write(packed, name=f"d.tsv{ending}"), SST2).texts == ("good",)
    with pytest.raises(DataError, match=rf"cut\.tsv{ending}: cannot be read"):
        read_dataset(write(packed[:-9], name=f"cut.tsv{ending}"), SST2)


def test_what_is_not_there_is_named(tmp_path):
    for path in (tmp_path / "absent.tsv", tmp_path):
        with pytest.raises(DataError, match=rf"{path}: cannot be read"):
            read_dataset(str(path), SST2)


def test_buckets_are_read_and_searched():
    # A process of its own, since the file system is put in the place of Amazon's.
    code = """if True:
        import fsspec
        from fsspec.implementations.memory import MemoryFileSystem

        class Bucket(MemoryFileSystem):
            protocol, store, pseudo_dirs = "s3", {}, [""]

            @classmethod
            def _strip_protocol(cls, path):
                return MemoryFileSystem._strip_protocol(path.replace("s3://", "memory://"))

        fsspec.register_implementation("s3", Bucket, clobber=True)
        with fsspec.filesystem("s3").open("s3://bucket/CoLA/train.tsv", "wb") as file:
            file.write(b"gj04\\t1\\t\\tWe sail.\\n")
        from bert_lamb.data.errors import DataError
        from bert_lamb.glue.reading import find_file, read_dataset
        from bert_lamb.glue.tasks import find_task
        task = find_task("CoLA")
        path = find_file("s3://bucket/CoLA", task, "train")
        assert read_dataset(path, task).texts == ("We sail.",)
        try:
            find_file("s3://bucket/CoLA", task, "dev")
        except DataError as error:
            print(error)
    """
    command = [sys.executable, "-W", "error", "-c", code]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    assert out.stdout.startswith("s3://bucket/CoLA: no file dev.tsv, plain or packed, for the spl")


def test_a_bucket_that_cannot_be_reached_is_named():
    for read in (lambda: read_dataset("gs://no-such-bucket/dev.tsv", SST2),
                 lambda: find_file("gs://no-such-bucket/SST-2", SST2, "dev")):  # fmt: skip
        with pytest.raises(DataError, match=r"source 'gs://no-such-bucket/.*(install|check)"):
            read()


def test_files_of_a_split_are_found_by_the_names_they_are_published_under(tmp_path):
    mnli = find_task("MNLI")
    for name in ("train.tsv.gz", "dev_matched.tsv", "dev_mismatched.tsv"):
        (tmp_path / name).touch()
    found = {split: Path(find_file(str(tmp_path), mnli, split)).name
             for split in ("train", "dev", "dev_mismatched")}  # fmt: skip
    assert found == {"train": "train.tsv.gz", "dev": "dev_matched.tsv",
                     "dev_mismatched": "dev_mismatched.tsv"}  # fmt: skip
    with pytest.raises(DataError, match=r"no file test\.tsv or test_matched\.tsv, plain or packed"):
        find_file(str(tmp_path), mnli, "test")
    with pytest.raises(DataError, match=r"absent: no file train\.tsv"):
        find_file(str(tmp_path / "absent"), SST2, "train")


GOOD = {
    SST2: b"sentence\tlabel\nit 's good \t1\n\t0\nbad \"\t0\n",
    COLA: b"gj04\t1\t\tWe sail.\r\ncj99\t0\t*\tSail we of.\r\n",
    RTE: b"\xef\xbb\xbf" + f"{RTE_HEADER}\n0\tA\tB\tentailment\n1\tA\tB\tentailment".encode(),
    STSB: b"sentence1\tsentence2\tscore\nA\tB\t2.5\nC\tD\t5.000\n",
    custom_task(["a"], "gold"): b"a\tgold\nx\tyes\ny\tno\nz\tno\n",
}
BYTES = st.one_of(st.sampled_from([b"\t", b"\n", b"\r", b'"', b"\0", b"\xff", b"\xc2\x85", b"1"]),
                  st.binary(max_size=3))  # fmt: skip


@st.composite
def spoiled(draw):
    """A good file with some stretches replaced, or any bytes at all."""
    task = draw(st.sampled_from(list(GOOD)))
    content = draw(st.one_of(st.just(GOOD[task]), st.just(GOOD[task]), st.binary(max_size=40)))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(content)))
        content = content[:at] + draw(BYTES) + content[at + draw(st.integers(0, 4)) :]
    return task, content


@given(spoiled())
@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_no_file_gives_a_traceback_and_no_line_is_lost(write, case):
    task, content = case
    path = write(content)
    lines = content.split(b"\n")
    count = len(lines) - (lines[-1] == b"")
    for skip in (False, True):
        try:
            data = read_dataset(path, task, skip_faulty=skip)
        except DataError as error:
            message = str(error)
        else:
            message = ""
        if message:
            assert len(message.splitlines()) == 1
            assert message.startswith((f"{path}: ", f"{path}, line "))
            continue
        is_headed = not data.columns[0].isdigit()
        assert len(data) + len(data.faults) == count - is_headed
        assert len(data.texts) == len(data.ids) == len(data)
        assert data.pairs is None or len(data.pairs) == len(data)
        if data.labels is not None:
            assert len(data.labels) == len(data)
            assert np.isfinite(data.labels).all()
        assert data.describe()
