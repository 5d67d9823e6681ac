"""Predicts chip-hours and the cost of a run on slices, from FLOPs and an assumed utilization.

    python scripts/launch/cost.py v3-2048 v3-32 v5e-256 v4-16:2 --price=v4=3.22
    python scripts/launch/cost.py v5e-256 --utilization=0.4

Nothing is measured: hours = FLOPs of the run / (chips x peak x utilization). The default
utilization is that of the published run: 76.19 minutes on 1,024 TPU v3 chips. Prices are yours to
look up.
"""

import argparse
import dataclasses
import math
import re
import sys
from collections.abc import Sequence

from accelerators import GENERATIONS, check_slices, find_slice
from options import MOST_SLICES, add_number, checked_words
from running import LaunchError, guarded

PUBLISHED_MINUTES, PUBLISHED_CHIPS, PUBLISHED_PEAK = 76.19, 1024, 123e12


def run_flops(config_file: str, vocab_size: int) -> float:
    """Returns the FLOPs of all steps of a config: forward and backward matrix products.

    Args:
        config_file: the recipe.
        vocab_size: of the records, which the config leaves open.
    """
    from bert_lamb.cli.overrides import load_config
    from bert_lamb.model.cost import flops_per_row

    config = load_config(config_file, [])
    model = dataclasses.replace(config.model, vocab_size=config.model.vocab_size or vocab_size)
    return float(
        sum(
            phase.steps
            * phase.global_batch
            * flops_per_row(model, phase.seq_length, phase.max_predictions)
            for phase in config.phases
        )
    )


def published_utilization(flops: float) -> float:
    """Returns the share of the peak that the published run of the recipe reached."""
    return flops / (PUBLISHED_MINUTES * 60 * PUBLISHED_CHIPS * PUBLISHED_PEAK)


def table(
    slices: Sequence[str], flops: float, utilization: float, prices: dict[str, float]
) -> list[str]:
    """Returns the lines of a Markdown table.

    Args:
        slices: TYPE or TYPE:COUNT.
        flops: of the run.
        utilization: share of the peak, 0 to 1.
        prices: of a chip-hour, by generation.
    """
    lines = ["| slices | chips | hours | chip-hours | cost |", "|---|---|---|---|---|"]
    for text in slices:
        name, colon, number = text.partition(":")
        count = int(number) if re.fullmatch("[0-9]{1,4}", number) else 0
        if colon and not 1 <= count <= MOST_SLICES:
            raise LaunchError(
                f"{text}: expected TYPE or TYPE:COUNT with a COUNT of 1 to {MOST_SLICES}"
            )
        slice_, count = find_slice(name), count or 1
        check_slices(slice_, count, "Cloud TPU VMs")
        chips = slice_.chips * count
        chip_hours = flops / (slice_.generation.peak * utilization) / 3600
        price = prices.get(slice_.generation.prefix)
        cost = "-" if price is None else f"{price * chip_hours:,.0f}"
        label = f"{count} x {slice_.name}" if count > 1 else slice_.name
        lines.append(
            f"| {label} | {chips:,} | {chip_hours / chips:,.1f} | {chip_hours:,.0f} | {cost} |"
        )
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the table; returns 0, or 2 for a fault that stderr explains in a line."""
    parser = argparse.ArgumentParser(
        prog="cost.py", description=__doc__, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("slices", nargs="+", metavar="TYPE[:COUNT]")
    parser.add_argument("--config", default="configs/bert_large_64k_32k.py", metavar="FILE")
    add_number(parser, "--vocab-size", least=1, default=30_522, help="default 30522")
    parser.add_argument("--utilization", type=float, help="share of the peak, 0 to 1")
    parser.add_argument(
        "--price", action="append", default=[], metavar="GENERATION=PRICE",
        help="of a chip-hour, may be repeated",
    )  # fmt: skip

    def body() -> None:
        args = parser.parse_args(checked_words(argv))
        flops = run_flops(args.config, args.vocab_size)
        used = published_utilization(flops) if args.utilization is None else args.utilization
        if not 0 < used <= 1:
            raise LaunchError(f"--utilization={used}: expected more than 0 and at most 1")
        print(f"Predicted, not measured: {flops:.3g} FLOPs at {used:.1%} of the peak.\n")
        print("\n".join(table(args.slices, flops, used, dict(map(_price, args.price)))))

    return guarded("cost.py", body)


def _price(text: str) -> tuple[str, float]:
    prefix, _, value = text.partition("=")
    prefixes = {"v5e": "v5litepod"} | {g.prefix: g.prefix for g in GENERATIONS}
    try:
        generation, price = prefixes[prefix], float(value)
    except (KeyError, ValueError):
        raise LaunchError(
            f"--price={text}: expected GENERATION=PRICE with one of {', '.join(prefixes)}"
        ) from None
    if not 0 <= price < math.inf:
        raise LaunchError(f"--price={text}: expected a PRICE of 0 or more")
    return generation, price


if __name__ == "__main__":
    sys.exit(main())
