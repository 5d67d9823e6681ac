"""How many tensors of the published model one array holds: declared, checked, never guessed."""

import operator
from collections.abc import Collection
from typing import Any

import jax
import optax

from bert_lamb.optim.masks import PerLeaf, leaf_paths, per_leaf


def stacked_axes(stacked: PerLeaf, params: optax.Params) -> Any:
    """Spreads declared counts of stacked axes over the leaves, and checks them.

    Args:
        stacked: as in `scale_by_trust_ratio`.
        params: pytree of parameters; arrays or `jax.ShapeDtypeStruct`.

    Returns:
        A pytree of ints shaped like `params`.

    Raises:
        ValueError: a count is not a whole number between 0 and the leaf's number of axes.
    """

    def checked(count: Any, path: str, param: jax.Array) -> int:
        try:
            axes = -1 if isinstance(count, bool) else operator.index(count)
        except TypeError:
            axes = -1
        if not 0 <= axes <= param.ndim:
            raise ValueError(
                f"stacked = {count!r} for {path!r} of shape {param.shape}: "
                f"expected a whole number of leading axes from 0 to {param.ndim}"
            )
        return axes

    return jax.tree.map(
        checked, per_leaf(stacked, params, 0, name="stacked"), leaf_paths(params), params
    )


def stacked_by_metadata(params: optax.Params, names: Collection[str] = ("layers",)) -> Any:
    """Reads the count of stacked axes from what Flax keeps beside each parameter.

    Args:
        params: an `nnx.State`, or Linen parameters still in their boxes. A box may have a
            `stacked_axes` of its own (`nnx.with_metadata(init, stacked_axes=1)`), or names of its
            axes, as `nnx.vmap` with a partition name and `nn.scan` with `metadata_params` leave
            them; then its leading axes with one of `names` count.
        names: of axes that stack published tensors; default ("layers",).

    Returns:
        A prefix pytree of ints for the `stacked` of `lamb`: one per box, 0 for a bare array.

    Examples:
        >>> import jax.numpy as jnp
        >>> from types import SimpleNamespace
        >>> from bert_lamb.optim import stacked_by_metadata
        >>> boxed = SimpleNamespace(value=jnp.ones([12, 4]), names=("layers", "embed"))
        >>> stacked_by_metadata({"kernel": boxed, "bias": jnp.ones(4)})
        {'bias': 0, 'kernel': 1}
    """

    def count(box: Any) -> int:
        metadata = box.get_metadata() if hasattr(box, "get_metadata") else vars_of(box)
        if "stacked_axes" in metadata:
            return int(metadata["stacked_axes"])
        axes = next((metadata[key] for key in _AXIS_NAMES if metadata.get(key) is not None), ())
        leading = 0
        while leading < len(axes) and axes[leading] in names:
            leading += 1
        return leading

    def vars_of(box: Any) -> dict[str, Any]:
        return {"names": box.names} if hasattr(box, "names") else {}

    return jax.tree.map(count, params, is_leaf=_is_box)


# Where NNX (now and before 0.12) and Linen keep the names of a parameter's axes.
_AXIS_NAMES = ("out_sharding", "sharding_names", "sharding", "names")


def _is_box(x: Any) -> bool:
    return hasattr(x, "get_metadata") or hasattr(x, "names")
