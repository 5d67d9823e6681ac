"""A run small enough for seconds: two phases of rows of 16 and 32 tokens."""

from typing import Any

import pytest

from bert_lamb.config import PretrainConfig, from_dict


@pytest.fixture
def config(small: dict[str, Any]) -> PretrainConfig:
    return from_dict(PretrainConfig, small)
