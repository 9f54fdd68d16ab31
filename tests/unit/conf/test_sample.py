"""The sample configuration is generated, and current; why it is in Git: RFD 0016."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[3]
GENERATOR = ROOT / "etc" / "acstor" / "acstor-config-generator.conf"
SAMPLE = ROOT / "etc" / "acstor" / "acstor.conf.sample"


def test_sample_is_current(tmp_path: pathlib.Path) -> None:
    """Run oslo-config-generator --config-file <the generator's file> when this fails."""
    made = tmp_path / "acstor.conf.sample"
    subprocess.run(
        [
            sys.executable,
            "-c",
            "from oslo_config import generator; generator.main()",
            "--config-file",
            str(GENERATOR),
            "--output-file",
            str(made),
        ],
        check=True,
        timeout=60,
    )
    assert made.read_text() == SAMPLE.read_text()
