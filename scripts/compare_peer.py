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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import machine
import optax
from jax.sharding import Mesh

from bert_lamb.cli.overrides import load_config
from bert_lamb.config import ModelConfig, ParallelConfig, PhaseConfig
from bert_lamb.parallel.mesh import make_mesh, over_rows, replicated
from bert_lamb.planning.chips import Chip, chip_of
from bert_lamb.planning.compile import lower_phase
from bert_lamb.planning.predict import Assumptions, predict
from bert_lamb.planning.reading import StepReading, read_step
from bert_lamb.planning.topology import compile_absent, topology_devices

CONFIG = "configs/bert_large_64k_32k.py"
VOCABULARY = 30_522


def main() -> int:
    """Compiles both steps of each phase and writes results.json and table.md."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default=CONFIG)
    parser.add_argument("--topology", default="v3:32x32")
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("overrides", nargs="*", help="--config.KEY=VALUE of ours, behind --")
    args = parser.parse_args()
    config = load_config(args.config, [f"--config.model.vocab_size={VOCABULARY}", *args.overrides])
    devices = topology_devices(args.topology)
    chip = chip_of(devices[0])
    results: list[dict[str, Any]] = []
    for index, phase in enumerate(config.phases):
        for name, lower in (
            (
                "bert_lamb",
                lambda i=index: lower_phase(config, i, make_mesh(config.parallel, devices)),
            ),
            ("transformers", lambda p=phase: lower_peer(config.model, p, devices)),
        ):
            print(f"phase {index + 1}, {name}: compiling for {args.topology}", file=sys.stderr)
            mesh = make_mesh(config.parallel if name == "bert_lamb" else ParallelConfig(), devices)
            reading = _read(lower, mesh, chip)
            results.append(_row(name, index, phase, reading, chip))
    args.output.mkdir(parents=True, exist_ok=True)
    found = {
        "machine": machine.describe(), "config": args.config, "overrides": args.overrides,
        "topology": args.topology, "versions": _versions(), "results": results,
    }  # fmt: skip
    (args.output / "results.json").write_text(json.dumps(found, indent=1) + "\n")
    table = _table(results)
    (args.output / "table.md").write_text(table)
    print(table)
    return 0


def lower_peer(
    config: ModelConfig, phase: PhaseConfig, devices: list[jax.Device]
) -> tuple[jax.stages.Lowered, dict[str, Any]]:
    """Lowers the peer's step, data parallel over all devices.

    Args:
        config: shape of the model, ours.
        phase: with the batch, its rows and predictions, ours.
        devices: of the topology.

    Returns:
        The step and the compiler's options, of which it has none.
    """
    mesh = make_mesh(ParallelConfig(), devices)
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


def _read(
    lower: Callable[[], tuple[jax.stages.Lowered, dict[str, Any]]], mesh: Mesh, chip: Chip
) -> StepReading:
    began = time.perf_counter()
    compiled = compile_absent(*lower())
    return read_step(compiled, mesh, chip, time.perf_counter() - began)


def _row(
    name: str, index: int, phase: PhaseConfig, reading: StepReading, chip: Chip
) -> dict[str, Any]:
    prediction = predict(reading, chip, Assumptions())
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
        "peak_gib": reading.memory.peak / 2**30,
        "compile_seconds": reading.compile_seconds,
    }


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
