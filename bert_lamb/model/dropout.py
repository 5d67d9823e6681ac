"""Dropout whose pattern is a function of what is dropped, not of the machine it runs on.

Both generators compare integers with a threshold, by default of 8 bits: a 32-bit word of random
bits serves four elements, a quarter of the cost of the usual float comparison. The rate is thereby
rounded to a multiple of 1/256 (0.1 becomes 26/256 = 0.1016); survivors are scaled by the share that
is exactly kept, so the expectation is unchanged.

"threefry" folds the global index of each row into the key. The bits of a row then depend on (step
key, site, row, position in the row) alone: the same on one device or a thousand, in one batch or
in micro-batches, under jit or inside shard_map.

"rbg" draws the bits of the whole local block with the accelerator's own generator (on TPU a large
part of the step is saved; on CPU it is slower than threefry). Devices and micro-batches differ
because the index of the first local row is folded in, and the pattern is therefore tied to how
rows are laid out. Under jit with a sharded batch the compiler does not partition this generator:
use it inside shard_map. Its integers come in planes, bit i of up to 32 rows in one word, and are
compared for all rows of a word at once. What is kept is one bit an element; a TPU would otherwise
read a byte of it in every product that needs the mask, forwards and backwards.
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
        bits: of each random integer, 8 or 32.
    """

    key: jax.Array
    row: jax.Array
    generator: str = dataclasses.field(metadata={"static": True})
    bits: int = dataclasses.field(default=8, metadata={"static": True})

    def at(self, site: int | jax.Array) -> "Noise":
        """Returns the source for one numbered place (a layer, or a site within a layer)."""
        return dataclasses.replace(self, key=jax.random.fold_in(self.key, site))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Mask:
    """What dropout keeps of an array [B, ...], in the form in which it is cheap to hold.

    Attributes:
        data: unsigned integers: [B, ...] to be compared with `threshold`; or, if that is None,
            words [G, ...] of W bits, of which bit i of word g is row g * W + i.
        rows: B.
        threshold: integers below it drop.
        kept_share: of the elements, in expectation.
    """

    data: jax.Array
    rows: int = dataclasses.field(metadata={"static": True})
    threshold: int | None = dataclasses.field(metadata={"static": True})
    kept_share: float = dataclasses.field(metadata={"static": True})

    def kept(self) -> jax.Array:
        """Returns bool [B, ...], False where dropout zeroes."""
        if self.threshold is not None:
            return self.data >= jnp.asarray(self.threshold, self.data.dtype)
        width = jnp.iinfo(self.data.dtype).bits
        place = jnp.arange(width, dtype=self.data.dtype)
        place = place.reshape(width, *(1,) * (self.data.ndim - 1))
        if self.data.shape[0] == 1:
            bits = self.data >> place[: self.rows]  # no reshape, which a TPU would write out
        else:
            bits = self.data[:, None] >> place
            bits = bits.reshape(-1, *self.data.shape[1:])[: self.rows]
        return (bits & jnp.asarray(1, bits.dtype)) > 0

    def swapped(self) -> "Mask":
        """Returns the mask of the array with its last two axes swapped."""
        return dataclasses.replace(self, data=jnp.swapaxes(self.data, -1, -2))


def dropout(x: jax.Array, rate: float, noise: Noise | None) -> jax.Array:
    """Zeroes elements of x with probability `effective_rate(rate)` and rescales the others.

    Args:
        x: [B, ...], any float dtype.
        rate: probability in [0, 1).
        noise: the source for this site; None, like rate 0, returns x and compiles to nothing.

    Raises:
        ValueError: if the rows of x and of the noise differ in number, or the generator or the
            number of bits is unknown.
    """
    mask = draw_mask(x.shape, rate, noise)
    return x if mask is None else apply_mask(x, mask)


@jax.custom_vjp
def apply_mask(x: jax.Array, mask: Mask) -> jax.Array:
    """Zeroes what the mask drops of x [B, ...] and rescales the rest; saves the mask as it is."""
    return jnp.where(mask.kept(), x * (1 / mask.kept_share), jnp.zeros((), x.dtype))


def _apply_mask_backward(mask: Mask, grad: jax.Array) -> tuple:
    return apply_mask(grad, mask), None


apply_mask.defvjp(lambda x, mask: (apply_mask(x, mask), mask), _apply_mask_backward)


def draw_mask(shape: tuple[int, ...], rate: float, noise: Noise | None) -> Mask | None:
    """Draws what is kept of an array.

    Args:
        shape: [B, ...], with the rows of `noise.row`.
        rate: probability of dropping an element.
        noise: the source for this site.

    Returns:
        None if nothing is ever dropped: without noise, or at a rate that is rounded to 0.

    Raises:
        ValueError: as `dropout`.
    """
    if noise is None or effective_rate(rate, noise.bits) == 0:
        return None
    B = shape[0]
    if noise.row.shape[0] != B:
        raise ValueError(f"dropout of {B} rows with batch['row'] of {noise.row.shape[0]} rows")
    if noise.bits not in (8, 32):
        raise ValueError(f"dropout_bits = {noise.bits}: expected 8 or 32")
    effective = effective_rate(rate, noise.bits)
    threshold = round(effective * 2**noise.bits)
    if noise.generator == "threefry":
        return Mask(_threefry_bits(noise, shape), B, threshold, 1 - effective)
    if noise.generator == "rbg":
        return Mask(_packed(noise, shape, threshold), B, None, 1 - effective)
    raise ValueError(f"dropout_rng = {noise.generator!r}: expected 'threefry' or 'rbg'")


def effective_rate(rate: float, bits: int = 8) -> float:
    """Returns the multiple of 1 / 2^bits that a rate is rounded to, below 1."""
    levels = 2**bits
    return min(round(rate * levels), levels - 1) / levels


def _threefry_bits(noise: Noise, shape: tuple[int, ...]) -> jax.Array:
    """Draws uniform integers of `noise.bits` bits, [B, ...]."""
    size = math.prod(shape[1:])
    per_word = 32 // noise.bits

    def row_words(row: jax.Array) -> jax.Array:
        key = jax.random.fold_in(noise.key, row)
        return jax.random.bits(key, (-(-size // per_word),), jnp.uint32)

    words = jax.vmap(row_words)(noise.row)
    if noise.bits == 8:
        words = jax.lax.bitcast_convert_type(words, jnp.uint8).reshape(shape[0], -1)
    return words[:, :size].reshape(shape)


def _packed(noise: Noise, shape: tuple[int, ...], threshold: int) -> jax.Array:
    """Draws words whose bits say whether a uniform integer of `noise.bits` bits is kept.

    Such an integer is below the threshold if at the highest bit where they differ, it has 0.
    Bits below the last 1 of the threshold cannot make it so, and are not drawn.
    """
    key = jax.random.key_data(jax.random.fold_in(noise.key, noise.row[0]))
    # The hardware generators take 128 bits, a threefry key has 64.
    key = jax.random.wrap_key_data(jnp.resize(key, (4,)), impl="rbg")
    width = next(width for width in (8, 16, 32) if width >= min(shape[0], 32))
    dtype = jnp.dtype(f"uint{width}")
    last = (threshold & -threshold).bit_length() - 1
    levels = range(noise.bits - 1, last - 1, -1)
    words = (-(-shape[0] // width), *shape[1:])
    planes = jax.random.bits(key, (len(levels), *words), dtype)
    below = jnp.zeros(words, dtype)
    equal = ~below
    for plane, level in zip(planes, levels, strict=True):
        if threshold >> level & 1:
            below |= equal & ~plane
            equal &= plane
        else:
            equal &= ~plane
    return ~below
