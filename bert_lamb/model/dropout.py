"""Dropout whose pattern is a function of what is dropped, not of the machine it runs on.

Both generators compare 8-bit integers with a threshold: a 32-bit word of random bits serves four
elements, a quarter of the cost of the usual float comparison. The rate is thereby rounded to a
multiple of 1/256 (0.1 becomes 26/256 = 0.1016); survivors are scaled by the share that is exactly
kept, so the expectation is unchanged.

"threefry" folds the global index of each row into the key. The bits of a row then depend on (step
key, site, row, position in the row) alone: the same on one device or a thousand, in one batch or
in micro-batches, under jit or inside shard_map.

"rbg" draws the bits of the whole local block with the accelerator's own generator (on TPU a large
part of the step is saved; on CPU it is slower than threefry). Devices and micro-batches differ
because the index of the first local row is folded in, and the pattern is therefore tied to how
rows are laid out. Under jit with a sharded batch the compiler does not partition this generator:
use it inside shard_map.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Noise:
    """The source of one forward pass's dropout patterns.

    Attributes:
        key: typed PRNG key; differs from step to step, equal on all devices.
        row: int32 [B], the index of each row in the global batch.
        generator: "threefry" or "rbg".
    """

    key: jax.Array
    row: jax.Array
    generator: str = dataclasses.field(metadata={"static": True})

    def at(self, site: int | jax.Array) -> "Noise":
        """Returns the source for one numbered place (a layer, or a site within a layer)."""
        return dataclasses.replace(self, key=jax.random.fold_in(self.key, site))


def dropout(x: jax.Array, rate: float, noise: Noise | None) -> jax.Array:
    """Zeroes elements of x with probability `effective_rate(rate)` and rescales the others.

    Args:
        x: [B, ...], any float dtype.
        rate: probability in [0, 1).
        noise: the source for this site; None, like rate 0, returns x and compiles to nothing.

    Raises:
        ValueError: if the rows of x and of the noise differ in number, or the generator is
            unknown.
    """
    rate = effective_rate(rate)
    if noise is None or rate == 0:
        return x
    keep = random_bytes(noise, x.shape) >= jnp.uint8(rate * 256)
    # One select: the backward pass needs only the mask, one byte an element.
    return jnp.where(keep, x * (1 / (1 - rate)), jnp.zeros((), x.dtype))


def effective_rate(rate: float) -> float:
    """Returns the multiple of 1/256 that a rate is rounded to, at most 255/256."""
    return min(round(rate * 256), 255) / 256


def random_bytes(noise: Noise, shape: tuple[int, ...]) -> jax.Array:
    """Draws uniform bytes, uint8, of a shape [B, ...] whose first axis is that of `noise.row`."""
    B = noise.row.shape[0]
    if shape[0] != B:
        raise ValueError(f"dropout of {shape[0]} rows with batch['row'] of {B} rows")
    size = math.prod(shape[1:])
    word_count = -(-size // 4)
    if noise.generator == "threefry":

        def row_words(row: jax.Array) -> jax.Array:
            return jax.random.bits(jax.random.fold_in(noise.key, row), (word_count,), jnp.uint32)

        words = jax.vmap(row_words)(noise.row)
    elif noise.generator == "rbg":
        key = jax.random.key_data(jax.random.fold_in(noise.key, noise.row[0]))
        # The hardware generators take 128 bits, a threefry key has 64.
        key = jax.random.wrap_key_data(jnp.resize(key, (4,)), impl="rbg")
        words = jax.random.bits(key, (B, word_count), jnp.uint32)
    else:
        raise ValueError(f"dropout_rng = {noise.generator!r}: expected 'threefry' or 'rbg'")
    data = jax.lax.bitcast_convert_type(words, jnp.uint8).reshape(B, 4 * word_count)
    return data[:, :size].reshape(shape)
