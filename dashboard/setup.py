"""Build the plug-in: metadata and files by pbr from setup.cfg, which names build_catalogues."""

import pathlib
import sys

import setuptools

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))  # of build_catalogues

setuptools.setup(setup_requires=["pbr>=7.0.0"], pbr=True)
