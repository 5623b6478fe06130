"""The exponents and the table that bench/growth.py writes."""

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def growth(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    return importlib.import_module("growth")


def test_the_exponent_of_a_power_law_is_found(growth):
    sizes = [10.0, 100.0, 1000.0]
    found = growth.fit(sizes, [3 * size**1.5 for size in sizes])
    assert found.slope == pytest.approx(1.5)
    assert found.last == pytest.approx(1.5)
    assert found.error == pytest.approx(0, abs=1e-9)


def test_fixed_costs_lower_the_exponent_least_between_the_largest_sizes(growth):
    sizes = [10.0, 100.0, 1000.0, 10_000.0]
    found = growth.fit(sizes, [50 + size for size in sizes])
    assert found.slope < found.last < 1
    assert found.error > 0


def test_the_table_has_a_row_for_every_curve_that_was_measured(growth):
    points = {"100": {"cpu": 1.0, "memory": 5.0}, "1000": {"cpu": 10.0, "memory": 50.0}}
    rows = growth.table({"search": points, "encoding": {"100": points["100"]}}).splitlines()[2:]
    assert rows == [
        "| 256 exact searches | 100 to 1,000 passages | 10 s | 1.00 | 1.00 | 5 to 50 | 1.00 | 1.00 |"
    ]
    assert growth.exponents([1.0, 10.0], [50.0, 49.9]) == "0.00 | 0.00", "no minus before nothing"


def test_every_curve_has_its_measurement(growth):
    for curve in growth.CURVES:
        assert {curve.name, curve.make} - {""} <= growth.CHILDREN.keys()
