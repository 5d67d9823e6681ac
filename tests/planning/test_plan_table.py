"""The script that plans every row of Table 1, in parts."""

import sys
from pathlib import Path

import pytest

from bert_lamb.planning.topology import generation_of, topology_devices
from bert_lamb.recipes import TABLE_1
from tests.planning.programs import needs_libtpu

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

import plan_table


def test_rows_are_chosen_by_their_configs():
    assert plan_table.chosen(None) == TABLE_1
    assert [row.config for row in plan_table.chosen(["bert_large_32k"])] == ["bert_large_32k"]
    with pytest.raises(SystemExit, match="--only=bert_32k: expected one of bert_large_adamw_512"):
        plan_table.chosen(["bert_32k"])


@pytest.mark.parametrize("row", TABLE_1, ids=lambda row: row.config)
def test_every_row_has_a_slice_of_its_chips_and_a_config(row):
    name = plan_table.topology_of(row.chips)
    assert generation_of(name) == "v3"
    short, long = map(int, name.removeprefix("v3:").split("x"))
    assert short * long == row.chips
    assert short <= long <= 2 * short
    assert (plan_table.CONFIGS / f"{row.config}.py").is_file()


@needs_libtpu
@pytest.mark.parametrize("chips", sorted({row.chips for row in TABLE_1}))
def test_the_compiler_knows_the_slices(chips):
    assert len(topology_devices(plan_table.topology_of(chips))) == 2 * chips


@needs_libtpu
def test_a_row_that_cannot_be_planned_stands_in_the_table_with_the_reason(tmp_path):
    results = [
        {"config": "a", "error": "config.parallel.fsdp = 3: expected a divisor", "quick": True},
        {"config": "b", "cells": ["b", "1,024", "32", *["1"] * 8], "quick": True},
    ]
    plan_table.write(tmp_path, results)
    assert plan_table.kept(tmp_path) == results
    lines = (tmp_path / "table.md").read_text().splitlines()
    assert len({line.count("|") for line in lines if line.startswith("|")}) == 1
    assert "| a | config.parallel.fsdp = 3: expected a divisor |" in lines[2]
    assert lines[-1].startswith("Predicted, not measured")
    assert "| b * | 1,024 |" in lines[3]
    assert "2 and 4 layers" in lines[-1]
