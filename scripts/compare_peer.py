"""Compiles a peer's pretraining step for the same absent TPUs as ours, and predicts both alike.

    python scripts/compare_peer.py --topology v3:32x32 --output docs/results/peer_flax

The peer is what there is to use in JAX today: FlaxBertForPreTraining of transformers, the last
releases of which with Flax are 4.x, in bfloat16 and otherwise as it comes, with optax.lamb, masks
for biases and norms, and clipping by the global norm, under jax.jit with the rows of the batch
split over all devices. It predicts at every position, of which its loss reads as many as ours.
Both steps go through the same compiler, reader and method (docs/scaling.md). Needs the extras
[tpu] and [parity]; nothing runs on a TPU. The two phases of BERT-Large take some minutes each.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import machine
import optax
from jax.sharding import Mesh
from plan_table import CONFIGS, VOCABULARY

from bert_lamb.cli.overrides import load_config
from bert_lamb.config import ModelConfig, ParallelConfig, PhaseConfig, PretrainConfig
from bert_lamb.parallel.mesh import make_mesh, over_rows, replicated
from bert_lamb.planning.cache import default_folder
from bert_lamb.planning.chips import chip_of
from bert_lamb.planning.fitting import Figures, fit_phase
from bert_lamb.planning.plan import Request, resolve_vocabulary, workshop_on
from bert_lamb.planning.predict import Assumptions, predict
from bert_lamb.planning.reading import read_step
from bert_lamb.planning.topology import compile_absent, topology_devices

CONFIG = CONFIGS / "bert_large_64k_32k.py"


def main() -> int:
    """Compiles both steps of each phase and writes results.json and table.md."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--topology", default="v3:32x32")
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--cache", type=Path, default=default_folder(), help="for our readings")
    args = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")
    args.output.mkdir(parents=True, exist_ok=True)
    config, _ = resolve_vocabulary(load_config(str(CONFIG), []), VOCABULARY)
    devices = topology_devices(args.topology)
    results: list[dict[str, Any]] = []
    for index, phase in enumerate(config.phases):
        print(f"phase {index + 1}, for {args.topology}: ours", file=sys.stderr, flush=True)
        results.append(_row("bert_lamb", index, phase, ours(config, index, devices, args.cache)))
        print(f"phase {index + 1}: transformers", file=sys.stderr, flush=True)
        results.append(_row("transformers", index, phase, peers(config.model, phase, devices)))
        _write(args.output, args.topology, results)
    print((args.output / "table.md").read_text(encoding="utf-8"))
    return 0


def ours(config: PretrainConfig, index: int, devices: list[jax.Device], cache: Path) -> Figures:
    """Returns the figures of our step, as `bert-lamb plan` has them."""
    request = Request(folder=cache, say=lambda line: print(line, file=sys.stderr, flush=True))
    figures = fit_phase(config, index, workshop_on(config, devices, request)).figures
    assert figures is not None, "the recipe fits"
    return figures


def peers(config: ModelConfig, phase: PhaseConfig, devices: list[jax.Device]) -> Figures:
    """Compiles the peer's step and returns its figures."""
    chip, mesh = chip_of(devices[0]), make_mesh(ParallelConfig(), devices)
    began = time.perf_counter()
    compiled = compile_absent(*lower_peer(config, phase, mesh))
    reading = read_step(compiled, mesh, chip, time.perf_counter() - began)
    return Figures(
        reading.memory, reading.flops, reading.compiler_flops, reading.unknown_loops,
        reading.compile_seconds, predict(reading, chip, Assumptions()),
    )  # fmt: skip


def lower_peer(
    config: ModelConfig, phase: PhaseConfig, mesh: Mesh
) -> tuple[jax.stages.Lowered, dict[str, Any]]:
    """Lowers the peer's step, data parallel over all devices.

    Args:
        config: shape of the model, ours.
        phase: with the batch, its rows and predictions, ours.
        mesh: of data alone.

    Returns:
        The step and the compiler's options, of which it has none.
    """
    network = _network(config)
    L, N = config.num_layers, config.num_heads

    def forward(params: Any, ids: jax.Array, mask: jax.Array, types: jax.Array, **how: Any) -> Any:
        positions = jnp.broadcast_to(jnp.arange(ids.shape[1]), ids.shape)
        heads = jnp.ones((L, N))
        return network.apply({"params": params}, ids, mask, types, positions, heads, **how)

    def loss(params: Any, batch: dict[str, jax.Array], key: jax.Array) -> jax.Array:
        output = forward(
            params, batch["ids"], batch["mask"], batch["types"],
            deterministic=False, rngs={"dropout": key},
        )  # fmt: skip
        labels, weights = jnp.maximum(batch["labels"], 0), batch["labels"] >= 0
        token = optax.softmax_cross_entropy_with_integer_labels(
            output.prediction_logits.astype(jnp.float32), labels
        )
        pair = optax.softmax_cross_entropy_with_integer_labels(
            output.seq_relationship_logits.astype(jnp.float32), batch["pairs"]
        )
        return jnp.sum(token * weights) / jnp.sum(weights) + jnp.mean(pair)

    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.lamb(
            1e-3, eps=1e-6, weight_decay=0.01,
            mask=lambda params: jax.tree.map(lambda x: x.ndim > 1, params),
        ),
    )  # fmt: skip

    def step(state: tuple, batch: dict[str, jax.Array]) -> tuple[tuple, jax.Array]:
        params, opt_state, count = state
        key = jax.random.fold_in(jax.random.key(0), count)
        value, grads = jax.value_and_grad(loss)(params, batch, key)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state, count + 1), value

    state, batch = _shapes(network, config, phase, optimizer, mesh)
    return jax.jit(step, donate_argnums=0).lower(state, batch), {}


def _network(config: ModelConfig) -> Any:
    from transformers import BertConfig, FlaxBertForPreTraining

    shape = BertConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        num_hidden_layers=config.num_layers,
        num_attention_heads=config.num_heads,
        intermediate_size=config.intermediate_size,
        max_position_embeddings=config.max_positions,
    )
    return FlaxBertForPreTraining(shape, seed=0, dtype=jnp.bfloat16, _do_init=False).module


def _shapes(
    network: Any, config: ModelConfig, phase: PhaseConfig, optimizer: Any, mesh: Mesh
) -> tuple[tuple, dict[str, jax.ShapeDtypeStruct]]:
    B, T = phase.global_batch, phase.seq_length
    one = jnp.ones((1, T), jnp.int32)
    heads = jnp.ones((config.num_layers, config.num_heads))
    params = jax.eval_shape(
        lambda key: network.init({"params": key, "dropout": key}, one, one, one, one, heads),
        jax.random.key(0),
    )["params"]
    state = (params, jax.eval_shape(optimizer.init, params), jax.ShapeDtypeStruct((), jnp.int32))
    rows = dict.fromkeys(("ids", "mask", "types", "labels"), (B, T)) | {"pairs": (B,)}
    return (
        jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=replicated(mesh)), state
        ),
        {
            name: jax.ShapeDtypeStruct(shape, jnp.int32, sharding=over_rows(mesh))
            for name, shape in rows.items()
        },
    )


def _row(name: str, index: int, phase: PhaseConfig, figures: Figures) -> dict[str, Any]:
    prediction = figures.prediction
    assert prediction.seconds is not None, "choose a generation whose cycles are trusted"
    return {
        "step": name,
        "phase": index + 1,
        "seconds_per_step": prediction.seconds,
        "minutes": prediction.seconds * phase.steps / 60,
        "computing_ms": {part: 1e3 * s for part, s in prediction.computing.items()},
        "communication_ms": 1e3 * (prediction.communication or 0),
        "exposed_ms": 1e3 * (prediction.exposed or 0),
        "kappa": prediction.kappa,
        "peak_gib": figures.memory.peak / 2**30,
        "compile_seconds": figures.compile_seconds,
    }


def _write(folder: Path, topology: str, results: list[dict[str, Any]]) -> None:
    found = {
        "machine": machine.describe(), "config": CONFIG.name, "topology": topology,
        "versions": _versions(), "results": results,
    }  # fmt: skip
    (folder / "results.json").write_text(json.dumps(found, indent=1) + "\n")
    (folder / "table.md").write_text(_table(results))


def _table(results: list[dict[str, Any]]) -> str:
    lines = ["| phase | step | ms a step | minutes | GiB a core |", "|---|---|---|---|---|"]
    for row in results:
        lines.append(
            f"| {row['phase']} | {row['step']} | {1e3 * row['seconds_per_step']:.1f} | "
            f"{row['minutes']:.1f} | {row['peak_gib']:.2f} |"
        )
    for name in dict.fromkeys(row["step"] for row in results):
        total = sum(row["minutes"] for row in results if row["step"] == name)
        most = max(row["peak_gib"] for row in results if row["step"] == name)
        lines.append(f"| all | {name} | | {total:.1f} | {most:.2f} |")
    return "\n".join(lines) + "\n"


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ("jax", "libtpu", "flax", "optax", "transformers")}


if __name__ == "__main__":
    sys.exit(main())
