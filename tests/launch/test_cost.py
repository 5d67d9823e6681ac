"""The prediction of chip-hours, against the published run."""

import pytest
from cost import main, published_utilization, run_flops, table

from tests.launch.launching import CONFIG, ROOT


@pytest.fixture(scope="module")
def flops() -> float:
    return run_flops(str(ROOT / CONFIG), 30_522)


def test_the_published_run_is_the_fixed_point(flops: float) -> None:
    used = published_utilization(flops)
    # 21.6 minutes at the peak, as the operations of both phases give by hand.
    assert flops == pytest.approx(21.6 * 60 * 1024 * 123e12, rel=2e-3)
    assert used == pytest.approx(0.2835, abs=5e-4)
    assert table(["v3-2048"], flops, used, {})[2] == "| v3-2048 | 1,024 | 1.3 | 1,300 | - |"


def test_hours_shrink_with_chips_and_cost_does_not(flops: float) -> None:
    rows = [
        [cell.strip() for cell in row.split("|")[1:-1]]
        for row in table(["v4-16", "v4-16:2"], flops, 0.4, {"v4": 2.0})[2:]
    ]
    assert [row[:2] for row in rows] == [["v4-16", "8"], ["2 x v4-16", "16"]]
    assert float(rows[0][2]) == pytest.approx(2 * float(rows[1][2]), abs=0.11)
    assert rows[0][3:] == rows[1][3:]
    assert float(rows[0][4].replace(",", "")) == pytest.approx(
        2 * flops / (275e12 * 0.4 * 3600), abs=1
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["v4-17"], "the nearest is v4-16"),
        (["v4-16:x"], "expected TYPE or TYPE:COUNT"),
        (["v4-16:²"], "expected TYPE or TYPE:COUNT with a COUNT of 1 to 1024"),
        (["v4-16:"], "v4-16:: expected TYPE or TYPE:COUNT"),
        (["v4-16:0"], "cost.py: v4-16:0: expected TYPE or TYPE:COUNT"),
        (["v4-16:1025"], "expected TYPE or TYPE:COUNT"),
        (["v4-" + "9" * 5000], "unknown type of accelerator"),
        (["v3-32:2"], "cost.py: 2 x v3-32: v3 slices cannot be joined"),
        (["v4-16", "--price=v4=nan"], "--price=v4=nan: expected a PRICE of 0 or more"),
        (["v4-16", "--price=v4=-1"], "--price=v4=-1: expected a PRICE of 0 or more"),
        (["v4-16", "--price=v4=inf"], "expected a PRICE of 0 or more"),
        (["v4-16", "--utilization=nan"], "at most 1"),
        (["v4-16", "--vocab-size=0"], "--vocab-size=0: expected 1 or more"),
        (["v4-16", "--config=a\nb"], "expected printable characters only"),
        (["v4-16", "--utilization=40"], "at most 1"),
        (["v4-16", "--price=v4:3"], "expected GENERATION=PRICE"),
    ],
)
def test_bad_requests_end_with_one_line(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
