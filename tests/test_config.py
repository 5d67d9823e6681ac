"""Configurations are checked at the door, with messages that name key, value and remedy."""

import importlib.util
from pathlib import Path

import pytest

from bert_lamb.config import ConfigError, PretrainConfig, differences, from_dict, to_dict

CONFIGS = Path(__file__).parents[1] / "configs"


def _load(name: str) -> PretrainConfig:
    spec = importlib.util.spec_from_file_location(name, CONFIGS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return from_dict(PretrainConfig, module.get_config().to_dict())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"model": {"hiden_size": 4}},
            "config.model.hiden_size = 4: unknown key; did you mean config.model.hidden_size?",
        ),
        ({"seed": "1"}, "config.seed = '1': expected int, got str"),
        ({"seed": True}, "config.seed = True: expected int, got bool"),
        ({"phases": []}, "config.phases = (): expected at least one phase"),
        ({"phases": 3}, "config.phases = 3: expected a list of a section (mapping), got int"),
        (
            {"phases": [{}, {"peak_lr": float("nan")}]},
            "config.phases[1].peak_lr = nan: expected a finite number",
        ),
        (
            {"phases": [{"warmup_steps": 20, "steps": 10}]},
            "config.phases[0].warmup_steps = 20: expected between 0 and steps = 10",
        ),
        (
            {"phases": [{"decay_form": "linear"}]},
            "config.phases[0].decay_form = 'linear': expected one of 'continuous', 'from_zero'",
        ),
        (
            {"model": {"hidden_size": 100, "num_heads": 3}, "phases": [{}]},
            "config.model.hidden_size = 100: expected a multiple of num_heads = 3",
        ),
        (
            {"optimizer": {"exclude": ".*bias"}, "phases": [{}]},
            "config.optimizer.exclude = '.*bias': expected a list of str, got str",
        ),
        ({"optimizer": {"b1": 1.0}}, "config.optimizer.b1 = 1.0: expected a rate in [0, 1)"),
        (
            {"phases": [{"seq_length": 1024}]},
            "config.phases[0].seq_length = 1024: expected at most model.max_positions = 512",
        ),
    ],
)
def test_faults_name_key_value_and_remedy(values, message):
    with pytest.raises(ConfigError) as caught:
        from_dict(PretrainConfig, values)
    assert str(caught.value) == message


def test_round_trip_and_differences():
    config = from_dict(PretrainConfig, {"phases": [{"steps": 200, "peak_lr": 1}]})
    assert config.phases[0].peak_lr == 1.0
    assert from_dict(PretrainConfig, to_dict(config)) == config
    other = to_dict(config)
    other["phases"][0]["steps"] = 300
    other["optimizer"]["clip_norm"] = None
    assert differences(to_dict(config), other) == [
        "config.optimizer.clip_norm: 1.0 -> None",
        "config.phases[0].steps: 200 -> 300",
    ]


@pytest.mark.parametrize("name", sorted(path.stem for path in CONFIGS.glob("*.py")))
def test_every_config_file_is_valid_and_says_how_to_run_it(name):
    assert _load(name).total_steps > 0
    text = (CONFIGS / f"{name}.py").read_text(encoding="utf-8")
    for word in ("Command:", "Hardware"):
        assert word in text.split('"""')[1]


def test_the_recipe_has_8599_steps_and_the_batches_of_the_paper():
    config = _load("bert_large_64k_32k")
    assert config.total_steps == 8_599
    assert [(p.seq_length, p.global_batch, p.steps) for p in config.phases] == [
        (128, 65_536, 7_037),
        (512, 32_768, 1_562),
    ]
