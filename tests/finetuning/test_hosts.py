"""Two hosts fine-tune and answer as one does: every host has all answers, one writes them."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from bert_lamb.finetuning.config import SquadConfig
from bert_lamb.finetuning.tuned import open_tuned
from tests.conftest import CACHE


@pytest.mark.slow
def test_two_hosts_answer_as_one_does(settings: dict[str, Any], tmp_path: Path):
    values = settings | {
        "model": settings["model"] | {"hidden_dropout": 0.0, "attention_dropout": 0.0},
        "optimizer": settings["optimizer"] | {"eps": 1e-3},  # see test_squad.py
        "epochs": 0.4,
    }
    config = tmp_path / "config.py"
    config.write_text(
        f"import ml_collections\ndef get_config(): return ml_collections.ConfigDict({values!r})\n"
    )

    def run(workdir: Path, hosts: int) -> list[list[str]]:
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = free.getsockname()[1]
        environment = os.environ | {
            "JAX_PLATFORMS": "cpu",
            "JAX_NUM_CPU_DEVICES": str(4 // hosts),
            # Compiled fast: hosts wait for each other no longer than 30 s.
            "XLA_FLAGS": "--xla_backend_optimization_level=0",
            "JAX_COMPILATION_CACHE_DIR": str(CACHE),
        }
        processes = [
            subprocess.Popen(
                [sys.executable, "-m", "bert_lamb.cli", "squad", "train", f"--config={config}",
                 f"--workdir={workdir}",
                 *((f"--coordinator=localhost:{port}", f"--num-processes={hosts}",
                    f"--process-id={i}") if hosts > 1 else ())],
                env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
            for i in range(hosts)
        ]  # fmt: skip
        ended = [(*process.communicate(timeout=300), process.returncode) for process in processes]
        assert [code for _, _, code in ended] == [0] * hosts, "\n".join(
            error for _, error, _ in ended
        )
        lines = [out.splitlines() for out, _, _ in ended]
        return [[line for line in own if "peer ranks" not in line] for own in lines]

    (alone,) = run(tmp_path / "one", 1)
    first, second = run(tmp_path / "two", 2)
    assert alone[:-1] == first[:-1]  # the last line names the folder
    assert second == []
    one, two = (
        json.loads((tmp_path / name / "dev" / "predictions.json").read_text())
        for name in ("one", "two")
    )
    assert len(one) == 41
    assert one == two
    a, b = (open_tuned(str(tmp_path / name), SquadConfig).params for name in ("one", "two"))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5), a, b)
