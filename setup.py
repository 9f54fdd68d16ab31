"""Build ACStor: metadata and files by pbr from setup.cfg, the extension by setuptools-rust."""

import os

import setuptools
import setuptools_rust.setuptools_ext


class Distribution(setuptools.Distribution):
    """A distribution that keeps the Rust extension.

    pbr replaces ``cmdclass`` after setuptools-rust has patched it, and the extension then
    silently stays out of the wheel; reading pyproject.toml once more restores it.
    ``tests/functional/test_wheel.py`` fails when this stops working.

    Of the development profile it has the features of the crates' tests, so that nothing is compiled
    for it alone: ``tools/test``.
    """

    def finalize_options(self) -> None:
        """Finalize as usual, then apply ``[tool.setuptools-rust]`` again."""
        super().finalize_options()
        setuptools_rust.setuptools_ext.pyprojecttoml_config(self)
        if os.environ.get("SETUPTOOLS_RUST_CARGO_PROFILE") == "dev":
            for extension in self.rust_extensions:
                extension.features = [*extension.features, "as-tested"]


setuptools.setup(setup_requires=["pbr>=7.0.0"], pbr=True, distclass=Distribution)
