"""Command of the build that compiles translations: Horizon does not do it for plug-ins."""

import os
import pathlib
from typing import ClassVar

from babel.messages import mofile, pofile
from setuptools.command import build_py


class BuildWithCatalogues(build_py.build_py):
    """Copies the modules, then compiles each catalogue into the tree that becomes the wheel."""

    command_name: ClassVar[str] = "build_py"

    def run(self) -> None:
        """Do both."""
        super().run()
        root = pathlib.Path(__file__).resolve().parent
        for source in sorted(root.glob("acstor_dashboard/locale/*/LC_MESSAGES/*.po")):
            target = pathlib.Path(self.build_lib, os.path.relpath(source, root)).with_suffix(".mo")
            target.parent.mkdir(parents=True, exist_ok=True)
            with source.open("rb") as given, target.open("wb") as made:
                mofile.write_mo(made, pofile.read_po(given))
