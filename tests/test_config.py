"""Configurations are checked at the door, with messages that name key, value and remedy."""

import pytest

from bert_lamb.config import ConfigError, PretrainConfig, differences, from_dict, to_dict


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
            "config.phases[0].decay_form = 'linear': expected one of 'continuous', 'from_zero', "
            "'mlperf'",
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
            {"phases": [{"steps": 10, "schedule_from": 5, "warmup_steps": 2}]},
            "config.phases[0].schedule_steps = 0: expected at least schedule_from + steps = 15",
        ),
        (
            {"phases": [{"warmup_start": -5}]},
            'config.phases[0].warmup_start = -5: expected 0, since decay_form = "continuous"',
        ),
        (
            {"phases": [{"warmup_start": 5, "decay_form": "mlperf"}]},
            "config.phases[0].warmup_start = 5: expected 0 or less",
        ),
        (
            {
                "phases": [
                    {"decay_form": "mlperf", "steps": 10, "warmup_steps": 13, "warmup_start": -2}
                ]
            },
            "config.phases[0].warmup_steps = 13: expected between 0 and steps - warmup_start = 12",
        ),
        (
            {"phases": [{"constant_steps": 901}]},
            "config.phases[0].constant_steps = 901: expected between 0 and the 900 updates after "
            "the warm-up",
        ),
        (
            {"phases": [{"constant_steps": 1, "decay_form": "from_zero"}]},
            'config.phases[0].constant_steps = 1: expected 0, since decay_form = "from_zero"',
        ),
        (
            {"optimizer": {"name": "adam"}},
            "config.optimizer.name = 'adam': expected one of 'lamb', 'lars', 'lans', 'adamw'",
        ),
        (
            {"optimizer": {"name": "lars", "b2": 0.99}},
            'config.optimizer.b2 = 0.99: expected 0.999, its default, since "lars" does not take '
            "it",
        ),
        (
            {"optimizer": {"name": "adamw", "variant": "lambc"}},
            "config.optimizer.variant = 'lambc': expected 'v5', its default, since \"adamw\" does "
            "not take it",
        ),
        (
            {"optimizer": {"name": "lans", "clip_norm": 0.5}},
            'config.optimizer.clip_norm = 0.5: expected 1.0 or None, since "lans" divides each '
            "tensor's gradient by its norm",
        ),
        (
            {"optimizer": {"variant": "nvlamb", "clip_norm": None}},
            'config.optimizer.clip_norm = None: expected a limit, since variant = "nvlamb" clips '
            "the mean gradient",
        ),
        (
            {"optimizer": {"variant": "apex", "clip": "bucket"}},
            'config.optimizer.clip = \'bucket\': expected "global", since variant = "apex" clips '
            "the mean gradient",
        ),
        (
            {"optimizer": {"pre_normalize": True}},
            "config.optimizer.clip_norm = 1.0: expected None, since pre_normalize makes every mean "
            "gradient's norm 1",
        ),
        (
            {"optimizer": {"ratio_bounds": [0.1, 1]}},
            'config.optimizer.ratio_bounds = (0.1, 1.0): expected None, since variant = "v5"; '
            'limits on the ratio are for "bounded"',
        ),
        (
            {"optimizer": {"phi_bounds": [1]}},
            "config.optimizer.phi_bounds = (1.0,): expected two numbers, 0 <= lower <= upper, or "
            "None for no limits",
        ),
        (
            {"phases": [{"seq_length": 1024}]},
            "config.phases[0].seq_length = 1024: expected at most model.max_positions = 512",
        ),
        (
            {"optimizer": {"name": "adamw"}, "logging": {"trust_ratios": True}, "phases": [{}]},
            "config.logging.trust_ratios = True: expected False, since adamw has no trust ratios",
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
