"""Imports go one way: a module imports only its own folder and lower layers."""

import ast
import subprocess
import sys
from pathlib import Path

import bert_lamb

ROOT = Path(bert_lamb.__file__).parent
LAYERS = {
    "__init__": 0, "config": 0,
    "optim": 1, "model": 1, "data": 1, "recipes": 1,
    "parallel": 2, "interop": 2,
    "evaluation": 3,
    "training": 4,
    "planning": 5, "squad": 5, "glue": 5,
    "finetuning": 6,
    "cli": 7,
}  # fmt: skip
OUTSIDE = {"optim": {"jax", "optax"}}  # all that these rooms may take from other packages


def _imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module == "bert_lamb":
                found |= {f"bert_lamb.{alias.name}" for alias in node.names}
            else:
                found.add(node.module or "")
    return found


def test_every_module_has_a_layer_and_imports_only_lower_ones():
    faults = []
    for path in ROOT.rglob("*.py"):
        room = path.relative_to(ROOT).parts[0].removesuffix(".py")
        assert room in LAYERS, f"{path}: give {room} a layer in this test and in the docs"
        for name in _imports(path):
            parts = name.split(".")
            if parts[0] != "bert_lamb":
                if room in OUTSIDE and parts[0] not in OUTSIDE[room] | set(sys.stdlib_module_names):
                    faults.append(f"{path.relative_to(ROOT)} imports {name}")
                continue
            target = parts[1] if len(parts) > 1 and parts[1] in LAYERS else "__init__"
            if target != room and LAYERS[target] >= LAYERS[room]:
                faults.append(f"{path.relative_to(ROOT)} (layer {LAYERS[room]}) imports {name}")
    assert not faults, "\n".join(faults)


def test_optim_loads_jax_and_optax_only():
    code = (
        "import sys, bert_lamb.optim;"
        "print([n for n in ('flax','orbax','grain','tokenizers','tensorflow','torch') "
        "if n in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_no_tensorflow_or_pytorch_at_run_time(tmp_path):
    code = (
        "import sys, bert_lamb.cli, bert_lamb.training.trainer, bert_lamb.training.saved;"
        "from bert_lamb.training.metrics import MetricsFiles;"
        f"MetricsFiles({str(tmp_path)!r}, start=0, tensorboard=True).close();"
        "print([n for n in ('tensorflow', 'torch', 'transformers') if n in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
    assert list((tmp_path / "tensorboard").iterdir())
