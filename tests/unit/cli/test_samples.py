import math

import pytest

from acstor.cli import samples
from acstor.cli.samples import Rates, Sample
from acstor.cli.top_view import draw, tier_shares

TEXT = """\
# HELP acstor_reads Reads.
# TYPE acstor_reads counter
acstor_reads_total{result="ok"} 100
acstor_reads_total{result="error"} 4
acstor_read_bytes_total 4096
acstor_read_chunks_total{tier="store"} 6
acstor_read_chunks_total{tier="peer"} 3
acstor_read_chunks_total{tier="origin"} 1
acstor_read_wait_seconds_bucket{le="0.001",tier="peer"} 5
acstor_read_wait_seconds_bucket{le="0.002",tier="peer"} 10
acstor_read_wait_seconds_bucket{le="+Inf",tier="peer"} 10
acstor_store_used_bytes 50
acstor_store_capacity_bytes 200
acstor_ring_generation 3
garbage
acstor_bad nonsense
# EOF
"""


def test_malformed_lines_are_left_out() -> None:
    values = samples.parse(TEXT)
    assert values["acstor_read_bytes_total", frozenset()] == 4096
    assert not [name for name, _ in values if name in {"garbage", "acstor_bad"}]


def test_rates_are_differences_per_second() -> None:
    rates = samples.rates("h1", Sample(10.0), Sample(12.0, samples.parse(TEXT)))
    assert rates.reads == 52
    assert rates.read_errors == 2
    assert rates.read_bytes == 2048
    assert tier_shares(rates) == {"local": 0.6, "peer": 0.3, "origin": 0.1}
    assert rates.wait_p50 == pytest.approx(0.001)
    assert rates.wait_p99 == pytest.approx(0.00198)
    assert rates.ring_generation == 3


def test_restarted_data_plane_counts_from_zero() -> None:
    before = Sample(0.0, {("acstor_reads_total", frozenset()): 1e9})
    rates = samples.rates("h1", before, Sample(1.0, samples.parse(TEXT)))
    assert rates.reads == 104


def test_first_sample_has_no_rates() -> None:
    rates = samples.rates("h1", None, Sample(1.0, samples.parse(TEXT)))
    assert rates.reads == 0
    assert rates.store_capacity_bytes == 200


def test_unreachable_host_keeps_its_line() -> None:
    sample = samples.fetch("127.0.0.1:1")
    assert sample.problem
    rates = samples.rates("h1", None, sample)
    assert rates == Rates("h1", problem=sample.problem)


def test_quantile_of_nothing_is_nothing() -> None:
    assert samples.quantile({}, {}, 0.5) is None
    assert samples.quantile({1.0: 5.0}, {1.0: 5.0}, 0.5) is None


def test_quantile_above_all_bounds_is_the_highest() -> None:
    assert samples.quantile({}, {0.5: 0.0, math.inf: 10.0}, 0.99) == 0.5


def test_picture_shows_every_host_and_the_sum() -> None:
    from rich.console import Console

    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    busy = samples.rates("h1", Sample(10.0), Sample(12.0, samples.parse(TEXT)))
    console.print(draw([busy, Rates("h2", problem="connection refused")], 1.0))
    text = console.export_text()
    assert "60 30 10 %" in text
    assert "connection refused" in text
    assert "52 reads/s" in text


def test_escapes_in_labels_are_undone() -> None:
    values = samples.parse('acstor_up{name="a \\"b\\" \\\\ {c}, d"} 1\n')
    assert values == {("acstor_up", frozenset({("name", 'a "b" \\ {c}, d')})): 1}


def test_time_stamps_and_exemplars_are_passed_over() -> None:
    text = 'acstor_a 3 1700000000.5\nacstor_b{x="y"} 4 # {trace="1"} 0.5 1700000000\n'
    found = {name: value for (name, _), value in samples.parse(text).items()}
    assert found == {"acstor_a": 3, "acstor_b": 4}


def test_buckets_are_kept_of_what_is_shown_only() -> None:
    text = 'acstor_read_wait_seconds_bucket{le="1.0"} 2\nacstor_other_bucket{le="1.0"} 2\n'
    assert samples.Sample(0.0, samples.parse(text)).wait_buckets() == {1.0: 2}
    assert len(samples.parse(text)) == 1
