"""Labels of tables' columns in plots."""

LABELS = {
    "traffic.cv": "CV of the extra traffic",
    "traffic.mean": "mean extra traffic (MB/s)",
    "network.origin": "rate of the origin",
    "machines.per_host": "machines per host",
    "boot_mean_s": "mean boot time (s)",
    "total_cv": "CV of all traffic",
    "throughput_mb_s": "throughput (MB/s)",
    "cv": "CV of the extra traffic",
    "mean": "mean extra traffic (MB/s on 1 Gbit/s)",
    "guests_per_host": "guests per host",
    "weight_lambda": "lambda",
    "mean_s": "mean boot time (s)",
}


def label_of(column: str) -> str:
    """Return what a plot calls a column; its name where it has no other."""
    return LABELS.get(column, column)
