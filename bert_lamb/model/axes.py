"""The names of the axes of every parameter, from which their places on a mesh follow."""

import re
from typing import Any

import jax

# Axes that stay whole on every device have no name.
Axes = tuple[str | None, ...]

_LAYER: dict[str, Axes] = {
    r"attention/(query|key|value)/kernel": ("heads", "embed"),
    r"attention/(query|key|value)/bias": ("heads", None),
    r"attention/out/kernel": ("heads", "width"),
    r"mlp/up/kernel": ("embed", "mlp"),
    r"mlp/up/bias": ("mlp",),
    r"mlp/down/kernel": ("mlp", "width"),
    r"(attention/out|mlp/down)/bias": (None,),
    r"(attention_norm|mlp_norm)/(scale|bias)": (None,),
}
_AXES: dict[str, Axes] = {
    r"embeddings/word/embedding": ("vocab", "width"),
    r"embeddings/position/embedding": ("positions", "width"),
    r"embeddings/segment/embedding": (None, None),
    r"(pooler|mlm/transform)/kernel": ("embed", "width"),
    r"mlm/bias": ("vocab",),
    r"(nsp|span|classifier)/kernel": (None, None),
    r"(embeddings/norm|mlm/norm)/(scale|bias)": (None,),
    r"(pooler|mlm/transform|nsp|span|classifier)/bias": (None,),
    **{f"layers/{path}": ("layers", *axes) for path, axes in _LAYER.items()},
}


def parameter_axes(params: Any) -> Any:
    """Names the axes of every parameter.

    The names: "layers", L; "embed", the width D that a matrix takes in; "width", the one that it
    gives out; "heads", N or N * H; "mlp", F; "vocab", V; "positions". None stands for an
    axis of a vector or a table too small to be cut.

    Args:
        params: a tree like that of `init`, of arrays or ShapeDtypeStructs.

    Returns:
        The same tree of tuples, one name for each axis.

    Raises:
        ValueError: for a parameter that has no names; give it some above.
    """
    return jax.tree_util.tree_map_with_path(_names, params)


def _names(path: Any, leaf: Any) -> Axes:
    name = jax.tree_util.keystr(path, simple=True, separator="/")
    axes = next((axes for rule, axes in _AXES.items() if re.fullmatch(rule, name)), None)
    if axes is None or len(axes) != len(leaf.shape):
        raise ValueError(f"parameter {name} {leaf.shape}: no axis names; see {__name__}")
    return axes
