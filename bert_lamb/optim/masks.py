"""Which tensors decay and adapt, chosen by the path of each leaf, and a table to check it by."""

import difflib
import math
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import optax

# A pytree with one entry per leaf of the parameters, a prefix of one, or a function from the
# parameters to one; None stands for the default everywhere.
PerLeaf = Any | Callable[[optax.Params], Any] | None

# The biases and the layer norms' scales: no author of LAMB code decays or adapts these.
DEFAULT_EXCLUDE = (r".*/bias", r".*norm.*/scale")


def leaf_paths(params: optax.Params) -> Any:
    """Returns a pytree like `params` with the path of each leaf in its place.

    Args:
        params: any pytree: dicts, lists, NamedTuples, registered classes, a Flax `nnx.State`.

    Returns:
        Strings such as "layers/0/attention/query/kernel": dict keys, list positions and field
        names joined by "/". The field `value` in which every leaf of an `nnx.State` ends is
        left off.

    Examples:
        >>> from bert_lamb.optim import leaf_paths
        >>> leaf_paths({"mlm": {"bias": 0.0}, "layers": [0.0, 0.0]})
        {'layers': ['layers/0', 'layers/1'], 'mlm': {'bias': 'mlm/bias'}}
    """
    keyed, structure = jax.tree_util.tree_flatten_with_path(params)
    keys = [path for path, _ in keyed]
    if keys and all(path and path[-1] == jax.tree_util.GetAttrKey("value") for path in keys):
        keys = [path[:-1] for path in keys]
    names = [jax.tree_util.keystr(path, simple=True, separator="/") for path in keys]
    return jax.tree.unflatten(structure, names)


def path_mask(params: optax.Params, exclude: Sequence[str] | None = None) -> Any:
    """Returns a pytree of bools: False for the leaves whose path matches a pattern.

    Args:
        params: pytree of parameters; arrays or `jax.ShapeDtypeStruct`.
        exclude: regular expressions, each matched against the whole path of a leaf as
            `leaf_paths` gives it. An empty sequence excludes nothing; default None, which takes
            `DEFAULT_EXCLUDE`, biases and layer norms' scales.

    Returns:
        A pytree like `params`, True where no pattern matches.

    Raises:
        TypeError: `exclude` is one string, whose letters would be taken for patterns.
        ValueError: a pattern is no regular expression, or matches no leaf at all; the message
            shows the paths that come nearest.

    Examples:
        >>> from bert_lamb.optim import path_mask
        >>> params = {"mlp": {"kernel": 1.0, "bias": 0.0}, "norm": {"scale": 1.0, "bias": 0.0}}
        >>> path_mask(params)
        {'mlp': {'bias': False, 'kernel': True}, 'norm': {'bias': False, 'scale': False}}
        >>> path_mask(params, exclude=("norm/.*",))
        {'mlp': {'bias': True, 'kernel': True}, 'norm': {'bias': False, 'scale': False}}
    """
    if exclude is None:
        exclude = DEFAULT_EXCLUDE
    if isinstance(exclude, str):
        raise TypeError(f"exclude = {exclude!r}: expected a sequence, such as ({exclude!r},)")
    paths = leaf_paths(params)
    excluded = set[str]()
    for pattern in exclude:
        matching = _matching(pattern, jax.tree.leaves(paths))
        excluded.update(matching)
    return jax.tree.map(lambda path: path not in excluded, paths)


def _matching(pattern: str, paths: list[str]) -> list[str]:
    try:
        matching = [path for path in paths if re.fullmatch(pattern, path)]
    except re.error as error:
        raise ValueError(f"exclude pattern {pattern!r} is no regular expression: {error}") from None
    if not matching:
        words = "".join(re.findall(r"[\w/]+", pattern.replace(r"\w", "").replace(r"\d", "")))
        nearest = difflib.get_close_matches(words, paths, n=3, cutoff=0.0)
        raise ValueError(
            f"exclude pattern {pattern!r} matches none of the {len(paths)} paths; "
            f"nearest: {', '.join(map(repr, nearest))}"
        )
    return matching


def per_leaf(rule: PerLeaf, params: optax.Params, default: Any) -> Any:
    """Spreads a rule over the leaves of the parameters.

    Args:
        rule: a pytree shaped like `params` or a prefix of them, or a function from `params` to
            one, or None.
        params: pytree of parameters.
        default: what None stands for.

    Returns:
        A pytree shaped like `params`.

    Raises:
        ValueError: the rule's structure does not fit; the message says where.
    """
    if rule is None:
        rule = default
    elif callable(rule):
        rule = rule(params)
    return jax.tree.broadcast(rule, params)


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

    return jax.tree.map(checked, per_leaf(stacked, params, 0), leaf_paths(params), params)


def mask_table(
    params: optax.Params,
    decays: PerLeaf = None,
    adapts: PerLeaf = None,
    stacked: PerLeaf = None,
) -> str:
    """Returns a table of what the optimizer does with each leaf, to print before a run.

    Args:
        params: pytree of parameters; arrays or `jax.ShapeDtypeStruct`.
        decays: `mask` of `lamb`: which leaves decay.
        adapts: `trust_ratio_mask` of `lamb`: which leaves adapt.
        stacked: of `lamb`: number of leading axes that stack published tensors.

    Returns:
        One line per leaf with its path, shape, stacked axes, number of published tensors, and
        whether it decays and adapts; then a line of totals.

    Raises:
        ValueError: a rule does not fit the parameters.

    Examples:
        >>> import jax.numpy as jnp
        >>> from bert_lamb.optim import mask_table, path_mask
        >>> params = {"mlp": {"kernel": jnp.ones([12, 4, 8]), "bias": jnp.zeros([12, 8])}}
        >>> mask = path_mask(params, exclude=(".*/bias",))
        >>> print(mask_table(params, mask, mask, stacked=1))
        path        shape       stacked  tensors  decays  adapts
        mlp/bias    (12, 8)           1       12  no      no
        mlp/kernel  (12, 4, 8)        1       12  yes     yes
        2 leaves, 24 tensors, 480 parameters; 384 decay, 384 adapt
    """
    header = ("path", "shape", "stacked", "tensors", "decays", "adapts")
    leaves = jax.tree.leaves(params)
    columns = (
        leaf_paths(params),
        stacked_axes(stacked, params),
        per_leaf(decays, params, True),
        per_leaf(adapts, params, True),
    )
    rows = [header]
    tensors = size = decaying = adapting = 0
    for leaf, path, axes, decay, adapt in zip(leaves, *map(jax.tree.leaves, columns), strict=True):
        count = math.prod(leaf.shape[:axes])
        rows.append(
            (
                path,
                str(tuple(leaf.shape)),
                str(axes),
                str(count),
                "yes" if decay else "no",
                "yes" if adapt else "no",
            )
        )
        tensors += count
        size += math.prod(leaf.shape)
        decaying += math.prod(leaf.shape) if decay else 0
        adapting += math.prod(leaf.shape) if adapt else 0
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    align = ("<", "<", ">", ">", "<", "<")
    lines = [
        "  ".join(
            f"{cell:{side}{width}}" for cell, side, width in zip(row, align, widths, strict=True)
        ).rstrip()
        for row in rows
    ]
    lines.append(
        f"{len(leaves):,} leaves, {tensors:,} tensors, {size:,} parameters; "
        f"{decaying:,} decay, {adapting:,} adapt"
    )
    return "\n".join(lines)
