"""SQuAD as TFDS prepares it, and what the package may load."""

import importlib.util
import json
import subprocess
import sys

import pytest

from bert_lamb.data.errors import DataError
from bert_lamb.squad.reading import read_dataset

needs_tfds = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow_datasets") is None, reason="needs tensorflow-datasets"
)

# TFDS's own builder of SQuAD; only the download is replaced.
BUILDER = """if True:
    import sys
    from tensorflow_datasets.datasets.squad.squad_dataset_builder import Builder

    def local(self, manager):
        path = f"{sys.argv[2]}/{self.builder_config.name}.json"
        return {"validation": self._generate_examples(path)}

    Builder._split_generators = local
    for config in sys.argv[3:]:
        builder = Builder(data_dir=sys.argv[1], config=config, file_format="array_record")
        builder.download_and_prepare()
    assert "tensorflow" not in sys.modules
"""


@pytest.fixture
def prepare(tmp_path, write_squad, make_qa):
    """Prepares both versions; returns the files they were made of."""

    def run() -> dict[str, str]:
        context = "The tow\u00ebr of Paris was built in 1889."
        files = {
            "v1.1": write_squad((context, [make_qa("a", ("Paris", 13), ("of Paris", 10))]),
                                ("Other.", [make_qa("b", ("Other", 0))]), name="v1.1.json"),
            "v2.0": write_squad((context, [make_qa("a", ("1889", 32), is_impossible=False),
                                           make_qa("b", is_impossible=True)]), name="v2.0.json"),
        }  # fmt: skip
        arguments = [str(tmp_path / "tfds"), str(tmp_path), *files]
        done = subprocess.run(
            [sys.executable, "-c", BUILDER, *arguments], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return files

    return run


OTHER = """if True:
    import sys
    import tensorflow_datasets as tfds

    class MyQuestions(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            text = tfds.features.Text()
            names = ("id", "title", "context", "question", *sys.argv[2:])
            return tfds.core.DatasetInfo(
                builder=self, features=tfds.features.FeaturesDict(dict.fromkeys(names, text))
            )

        def _split_generators(self, manager):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            yield 0, dict.fromkeys(self.info.features, "x")

    MyQuestions(data_dir=sys.argv[1], file_format="array_record").download_and_prepare()
"""


@needs_tfds
@pytest.mark.parametrize(
    ("more", "problem"),
    [([], "has no feature answers"), (["answers"], "example 0: cannot be read as a question")],
)
def test_data_sets_of_another_form_say_so(tmp_path, more, problem):
    command = [sys.executable, "-c", OTHER, str(tmp_path), *more]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with pytest.raises(DataError, match=problem):
        read_dataset(f"tfds:my_questions?data_dir={tmp_path}")


@needs_tfds
def test_data_sets_of_tfds_are_those_of_the_files(prepare, tmp_path):
    for config, file in prepare().items():
        plain = read_dataset(file)
        source = f"tfds:squad/{config}@validation?data_dir={tmp_path / 'tfds'}"
        found = read_dataset(source)
        assert (found.version, found.name) == (plain.version, source)
        by_id = {q.id: (q.text, found.context(q), q.answers) for q in found.questions}
        assert by_id == {q.id: (q.text, plain.context(q), q.answers) for q in plain.questions}
        assert len(found.paragraphs) == len(plain.paragraphs)
    with pytest.raises(DataError, match=r"asked for as SQuAD v1\.1"):
        read_dataset(source, "1.1")
    with pytest.raises(DataError, match="split 'train' cannot be used"):
        read_dataset(f"tfds:squad/v1.1?data_dir={tmp_path / 'tfds'}")
    with pytest.raises(DataError, match=r"not prepared in .*; prepare it: pip install"):
        read_dataset(f"tfds:squad/v1.1?data_dir={tmp_path}")
    shard = next((tmp_path / "tfds/squad/v1.1").rglob("*.array_record*"))
    whole = shard.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"x" * len(whole)):
        shard.write_bytes(damaged)
        with pytest.raises(
            DataError, match=r"squad-validation\.\S*(, examples from 0)?: cannot be read"
        ):
            read_dataset(f"tfds:squad/v1.1@validation?data_dir={tmp_path / 'tfds'}")


def test_nothing_here_loads_jax_or_tensorflow(write_squad, make_qa, tmp_path):
    path = write_squad(("The tower.", [make_qa("q", ("tower", 4))]))
    (tmp_path / "p.json").write_text(json.dumps({"q": "tower"}))
    code = """if True:
        import importlib, pkgutil, sys
        import bert_lamb.squad
        from bert_lamb.cli import main
        for module in pkgutil.iter_modules(bert_lamb.squad.__path__):
            importlib.import_module(f"bert_lamb.squad.{module.name}")
        assert main(["squad", "evaluate", *sys.argv[1:]]) == 0
        heavy = ("jax", "tensorflow", "torch", "matplotlib", "transformers", "tensorflow_datasets")
        print([name for name in heavy if name in sys.modules], file=sys.stderr)
    """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, path, str(tmp_path / "p.json")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["exact_match", "100.0000", "f1", "100.0000", "total", "1"]
    assert done.stderr == "[]\n"
