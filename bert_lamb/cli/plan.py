"""`bert-lamb plan`: what a config costs on a named topology, without an accelerator."""

import argparse
import importlib.util
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bert_lamb.cli.overrides import load_config
from bert_lamb.cli.sweeps import expand_phases, parse_sweep, settings_of
from bert_lamb.cli.verbs import OK, add_verb
from bert_lamb.config import ConfigError, PretrainConfig

if TYPE_CHECKING:
    from bert_lamb.planning.plan import Plan, Request

WRONG = 2


def add_plan(verbs: argparse._SubParsersAction) -> None:
    """Adds `plan`."""
    plan = add_verb(
        verbs, "plan", "say what a config costs on TPUs, compiled for them without owning any",
        "bert-lamb plan --config=configs/bert_large_64k_32k.py\n"
        "  bert-lamb plan --config=configs/bert_large_64k_32k.py --topology=v3:32x32\n"
        "  bert-lamb plan --config=configs/demo.py --topology=v3:4x4 --topology=v5e:4x4 \\\n"
        "      --sweep config.model.remat=none,full",
    )  # fmt: skip
    plan.add_argument(
        "--config", required=True, metavar="FILE",
        help="as for pretrain; --config.KEY=VALUE sets a key, --config.phases[*].KEY=VALUE that of "
        "every phase",
    )  # fmt: skip
    plan.add_argument(
        "--topology", action="append", default=[], metavar="NAME",
        help="generation and chips along each side, such as v3:32x32 or v5p:4x4x8; several times "
        "compares them. Without one nothing is compiled. Needs bert-lamb[tpu]",
    )  # fmt: skip
    plan.add_argument(
        "--sweep", action="append", default=[], metavar="KEY=V1,V2",
        help="compare values of a key, such as config.model.remat=none,full or "
        "config.phases[*].max_rows_per_device=16,32; several times takes all combinations",
    )  # fmt: skip
    plan.add_argument(
        "--vocab-size", type=int, metavar="V",
        help="tokens, where neither config nor records say it (default 30522)",
    )  # fmt: skip
    _add_assumptions(plan)
    _add_output(plan)
    plan.set_defaults(verb=_plan, takes_overrides=True)


def _add_assumptions(plan: argparse.ArgumentParser) -> None:
    group = plan.add_argument_group("assumptions")
    group.add_argument(
        "--kappa", type=float, metavar="X",
        help="factor from the compiler's estimate to a real step on v2 and v3 (default 1.15)",
    )  # fmt: skip
    group.add_argument(
        "--utilization", "--utilisation", type=float, metavar="X",
        help="share of the peak while computing, 0 to 1, for generations other than v2 and v3; "
        "without it they get no time",
    )  # fmt: skip
    group.add_argument("--price-per-chip-hour", type=float, metavar="P", help="for the cost")
    group.add_argument(
        "--rows-per-second-per-host", type=float, metavar="R",
        help="what the input pipeline of a host delivers, to compare with the need",
    )  # fmt: skip
    group.add_argument(
        "--quick", action="store_true",
        help="compile 2 and 4 layers instead of all and draw a line through them",
    )  # fmt: skip


def _add_output(plan: argparse.ArgumentParser) -> None:
    group = plan.add_argument_group("output")
    group.add_argument("--json", metavar="FILE", help="write everything there")
    group.add_argument("--plot", metavar="FILE", help="draw there (.png, .svg) where the time goes")
    group.add_argument(
        "--cache", metavar="FOLDER",
        help="for what was read from compiled steps, so that none is compiled twice (default: the "
        "user's folder for caches); '' keeps nothing",
    )  # fmt: skip


def _plan(args: argparse.Namespace) -> int:
    from bert_lamb.data.errors import DataError

    try:
        return _run(args)
    except (ConfigError, DataError) as error:
        message = str(error)
    except ModuleNotFoundError as error:
        if error.name is not None:  # a package that Python misses, not the compiler that we do
            raise
        message = str(error)
    except TopologyError as error:
        message = str(error)
    print(f"bert-lamb: {message}", file=sys.stderr)
    return WRONG


class TopologyError(Exception):
    """A topology that there is none of."""


def _run(args: argparse.Namespace) -> int:
    # All that can be wrong is found before anything is compiled.
    _check_numbers(args)
    _check_files(args)
    phases = len(load_config(args.config, []).phases)
    flags = [f for flag in args.config_flags for f in expand_phases(flag, phases)]
    settings = settings_of([parse_sweep(text) for text in args.sweep])
    configs = [load_config(args.config, [*flags, *_flags(setting, phases)]) for setting in settings]
    _stay_off_accelerators()
    _check_topologies(args)
    several = len(configs) * len(args.topology) > 1
    found = [
        ((topology or "-", *setting.values()), _one(args, config, topology, several))
        for topology in args.topology or [None]
        for setting, config in zip(settings, configs, strict=True)
    ]
    names = [text.partition("=")[0].removeprefix("config.") for text in args.sweep]
    return _show(args, ["topology", *names], found)


def _flags(setting: dict[str, str], phases: int) -> list[str]:
    return [f for k, v in setting.items() for f in expand_phases(f"--{k}={v}", phases)]


def _check_topologies(args: argparse.Namespace) -> None:
    from bert_lamb.planning.chips import CHIPS
    from bert_lamb.planning.topology import generation_of

    clocked = {chip.generation: chip.clock_hz is not None for chip in CHIPS}
    for name in args.topology:
        try:
            generation = generation_of(name)
        except ValueError as error:
            raise TopologyError(str(error)) from None
        if args.plot and args.utilization is None and not clocked[generation]:
            raise ConfigError(
                f"--plot={args.plot}: no time is predicted for {generation}; state a share of the "
                "peak with --utilization"
            )


def _stay_off_accelerators() -> None:
    """Keeps JAX on the CPU: a plan computes nothing, and chips may be busy or not there."""
    import jax

    jax.config.update("jax_platforms", "cpu")


def _one(
    args: argparse.Namespace, config: PretrainConfig, topology: str | None, several: bool
) -> "Plan | str":
    """Plans one setting; in a comparison a setting that cannot be is told, not raised."""
    from bert_lamb.planning.plan import plan_on, plan_run, resolve_vocabulary

    config, source = resolve_vocabulary(config, args.vocab_size)
    if topology is None:
        return plan_run(config, source)
    try:
        return plan_on(config, source, topology, _request(args))
    except ConfigError as error:
        if not several:
            raise
        return str(error)
    except ValueError as error:
        raise TopologyError(str(error)) from error


def _request(args: argparse.Namespace) -> "Request":
    from bert_lamb.planning.cache import default_folder
    from bert_lamb.planning.plan import Request
    from bert_lamb.planning.predict import Assumptions

    given = {"kappa": args.kappa, "utilization": args.utilization}
    assumptions = Assumptions(**{k: v for k, v in given.items() if v is not None})
    folder = default_folder() if args.cache is None else Path(args.cache) if args.cache else None
    return Request(assumptions, args.price_per_chip_hour, folder, args.quick, _say)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _show(
    args: argparse.Namespace,
    names: Sequence[str],
    found: "Sequence[tuple[tuple[str, ...], Plan | str]]",
) -> int:
    from bert_lamb.planning.report import plan_text, plan_values, sweep_text

    assumptions = _request(args).assumptions
    plans = [plan for _, plan in found if not isinstance(plan, str)]
    if len(found) == 1:
        print(plan_text(plans[0], assumptions))
        _compare_input(args, plans[0])
    else:
        print(sweep_text(found, names))
    if args.json:
        values = [
            {"setting": dict(zip(names, setting, strict=True))}
            | ({"error": plan} if isinstance(plan, str) else plan_values(plan, assumptions))
            for setting, plan in found
        ]
        text = json.dumps(values[0] if len(values) == 1 else values, indent=1)
        Path(args.json).write_text(text + "\n", encoding="utf-8")
    if args.plot:
        from bert_lamb.planning.plot import draw

        draw([(" ".join(setting), plan) for setting, plan in found if not isinstance(plan, str)],
             args.plot)  # fmt: skip
    if len(found) == 1 and not plans[0].fits:
        print("bert-lamb: the run does not fit; see above", file=sys.stderr)
        return WRONG
    return OK


def _compare_input(args: argparse.Namespace, plan: "Plan") -> None:
    given = args.rows_per_second_per_host
    for number, phase in enumerate(plan.phases, 1):
        if given is not None and phase.host_rows is not None:
            enough = "enough" if given >= phase.host_rows else "TOO FEW: the devices would wait"
            print(f"input of phase {number}: {given:,.0f} rows/s a host given, "
                  f"{phase.host_rows:,.0f} needed, {enough}")  # fmt: skip


def _check_numbers(args: argparse.Namespace) -> None:
    limits = {
        "kappa": (0.0, math.inf),
        "utilization": (0.0, 1.0),
        "price_per_chip_hour": (0.0, math.inf),
        "rows_per_second_per_host": (0.0, math.inf),
        "vocab_size": (1, math.inf),
    }
    for name, (low, high) in limits.items():
        value = getattr(args, name)
        above = value is None or (value > low if name in ("kappa", "utilization") else value >= low)
        if not above or (value is not None and not value <= high) or value == math.inf:
            than = "more than" if name in ("kappa", "utilization") else "at least"
            most = f" and at most {high:g}" if high < math.inf else ""
            flag = name.replace("_", "-")
            raise ConfigError(f"--{flag}={value:g}: expected a number of {than} {low:g}{most}")


def _check_files(args: argparse.Namespace) -> None:
    """Finds a file that cannot be written before minutes are spent on what belongs in it."""
    for flag in ("json", "plot"):
        path = getattr(args, flag)
        if path is not None and not Path(path).absolute().parent.is_dir():
            raise ConfigError(f"--{flag}={path}: expected a file in a folder that exists")
    if args.plot and Path(args.plot).suffix not in (".png", ".svg", ".pdf"):
        raise ConfigError(f"--plot={args.plot}: expected a name that ends in .png, .svg or .pdf")
    if args.plot and importlib.util.find_spec("matplotlib") is None:
        raise ConfigError(
            f"--plot={args.plot}: needs matplotlib; run pip install 'bert-lamb[plot]'"
        )
    if args.plot and not args.topology:
        raise ConfigError(f"--plot={args.plot}: there is no time to draw without --topology")
