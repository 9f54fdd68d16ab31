"""The command line in a process whose address space is limited: ``BYTES ARGUMENT ...``."""

import resource
import sys

from acstor.cli import app
from tests.unit.repository.test_commands import commands


def main() -> int:
    """Run the command; return its exit status."""
    limit = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    application = app.Application()
    for name, target in commands().items():
        application.command_manager.add_command(name.replace("_", " "), target)
    return int(application.run(sys.argv[2:]))


if __name__ == "__main__":
    sys.exit(main())
