"""Values for each leaf, chosen by its path: which tensors decay, adapt, and how they stack."""

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import optax

# A pytree with one entry per leaf of the parameters, a prefix of one, or a function from the
# parameters to one; None stands for the default everywhere.
PerLeaf = Any | Callable[[optax.Params], Any] | None

# A regular expression for the whole path of a leaf, or a function (path, leaf) -> bool.
PathRule = str | Callable[[str, Any], bool]

# The biases and the layer norms' scales: no author of LAMB code decays or adapts these.
DEFAULT_EXCLUDE = (r".*/bias", r".*norm.*/scale")

# The same tensors as other code names them: Flax's layers, NNX and Linen alike, where only norms
# have a parameter called scale, and Hugging Face's BERT in Flax and in PyTorch.
EXCLUDE = {
    "bert_lamb": DEFAULT_EXCLUDE,
    "flax": (r"(.*/)?bias", r"(.*/)?scale"),
    "huggingface": (r"(.*[./])?bias", r"(.*[./])?LayerNorm[./](weight|scale|gamma)"),
}


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


def path_mask(params: optax.Params, exclude: Sequence[PathRule] | None = None) -> Any:
    """Returns a pytree of bools: False for the leaves that a rule picks out.

    Args:
        params: pytree of parameters; arrays or `jax.ShapeDtypeStruct`.
        exclude: rules: regular expressions, each matched against the whole path of a leaf as
            `leaf_paths` gives it, or functions (path, leaf) -> bool. An empty sequence excludes
            nothing; default None, which takes `DEFAULT_EXCLUDE`, biases and layer norms' scales
            as this package's BERT names them. `EXCLUDE` has the same for other code's names.

    Returns:
        A pytree like `params`, True where no rule matches.

    Raises:
        TypeError: `exclude` is one string, whose letters would be taken for patterns.
        ValueError: a pattern is no regular expression, or a rule matches no leaf at all; the
            message shows the paths that come nearest.

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
    leaves = _leaves_by_path(params)
    excluded = set[str]()
    for rule in exclude:
        excluded.update(_matching("exclude", rule, leaves))
    return jax.tree.map(lambda path: path not in excluded, leaf_paths(params))


def assign_by_path(params: optax.Params, rules: Mapping[PathRule, Any]) -> Any:
    """Returns a pytree with a value for each leaf, from rules that must cover every leaf once.

    Args:
        params: pytree of parameters; arrays or `jax.ShapeDtypeStruct`.
        rules: from a regular expression, matched against whole paths, or a function
            (path, leaf) -> bool, to the value of the leaves that it matches.

    Returns:
        A pytree like `params`, such as `lamb` takes for `mask` or `stacked`.

    Raises:
        TypeError: `rules` is no mapping.
        ValueError: a rule matches no leaf, a leaf has no rule, or two.

    Examples:
        >>> from bert_lamb.optim import assign_by_path
        >>> params = {"embedding": 0.0, "layers": {"kernel": 0.0, "bias": 0.0}}
        >>> assign_by_path(params, {"layers/.*": 1, "embedding": 0})
        {'embedding': 0, 'layers': {'bias': 1, 'kernel': 1}}
    """
    if not isinstance(rules, Mapping):
        raise TypeError(f"rules = {rules!r}: expected a mapping such as {{'layers/.*': 1}}")
    leaves = _leaves_by_path(params)
    assigned: dict[str, tuple[PathRule, Any]] = {}
    for rule, value in rules.items():
        for path in _matching("rule", rule, leaves):
            if path in assigned:
                raise ValueError(
                    f"{path!r} matches two rules, {_name(assigned[path][0])} and {_name(rule)}: "
                    "expected exactly one"
                )
            assigned[path] = (rule, value)
    missing = [path for path in leaves if path not in assigned]
    if missing:
        shown = ", ".join(map(repr, missing[:5])) + (", ..." if len(missing) > 5 else "")
        raise ValueError(f"{len(missing)} leaves match no rule: {shown}; add one for them")
    return jax.tree.map(lambda path: assigned[path][1], leaf_paths(params))


def _leaves_by_path(params: optax.Params) -> dict[str, Any]:
    paths = jax.tree.leaves(leaf_paths(params))
    return dict(zip(paths, jax.tree.leaves(params), strict=True))


def _name(rule: PathRule) -> str:
    return repr(rule) if isinstance(rule, str) else getattr(rule, "__name__", repr(rule))


def _matching(what: str, rule: PathRule, leaves: Mapping[str, Any]) -> list[str]:
    if callable(rule):
        chosen = [path for path, leaf in leaves.items() if rule(path, leaf)]
        if not chosen:
            raise ValueError(f"{what} {_name(rule)} is true for none of the {len(leaves)} leaves")
        return chosen
    try:
        chosen = [path for path in leaves if re.fullmatch(rule, path)]
    except re.error as error:
        raise ValueError(f"{what} pattern {rule!r} is no regular expression: {error}") from None
    if not chosen:
        words = "".join(re.findall(r"[\w/]+", rule.replace(r"\w", "").replace(r"\d", "")))
        nearest = difflib.get_close_matches(words, leaves, n=3, cutoff=0.0)
        raise ValueError(
            f"{what} pattern {rule!r} matches none of the {len(leaves)} paths; "
            f"nearest: {', '.join(map(repr, nearest))}"
        )
    return chosen


def per_leaf(
    rule: PerLeaf,
    params: optax.Params,
    default: Any,
    is_leaf: Callable[[Any], bool] | None = None,
    *,
    name: str,
) -> Any:
    """Spreads a rule over the leaves of the parameters.

    Args:
        rule: a pytree shaped like `params` or a prefix of them, or a function from `params` to
            one, or None.
        params: pytree of parameters.
        default: what None stands for.
        is_leaf: says which nodes of the rule are values of their own.
        name: of the argument, for the message.

    Returns:
        A pytree shaped like `params`.

    Raises:
        ValueError: the rule's structure does not fit; the message says where.
    """
    if rule is None:
        rule = default
    elif callable(rule):
        rule = rule(params)
    try:
        return jax.tree.broadcast(rule, params, is_leaf=is_leaf)
    except ValueError as error:
        place = re.search(r"prefix_tree(\S*)", str(error))
        where = f", which it does not at {place[1] or 'its top'}" if place else ""
        raise ValueError(
            f"{name}: expected a pytree shaped like the parameters, or a prefix of one that covers "
            f"every leaf and nothing else{where}"
        ) from None


def leaf_flags(name: str, rule: PerLeaf, params: optax.Params) -> Any:
    """Spreads a mask over the leaves of the parameters; None stands for True everywhere.

    Raises:
        ValueError: the mask does not fit, or a value of it is not a bool.
    """
    spread = per_leaf(rule, params, True, name=name)
    for path, flag in zip(
        jax.tree.leaves(leaf_paths(params)), jax.tree.leaves(spread), strict=True
    ):
        if not isinstance(flag, bool) and str(getattr(flag, "dtype", "")) != "bool":
            raise ValueError(f"{name} = {flag!r} for {path!r}: expected True or False")
    return spread
