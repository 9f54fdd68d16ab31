"""Program that serves Horizon with the plug-in until it is ended.

Collects and compresses the static files first, as the guide says, and then writes its port into
the file ``port``. Its folder and Keystone's URL are in the environment.
"""

import os
import pathlib
from collections.abc import Callable, Iterable
from typing import Any

import django

os.environ["DJANGO_SETTINGS_MODULE"] = "tests.interop.dashboard.settings"
django.setup()

from django.conf import settings  # noqa: E402
from django.contrib.staticfiles import finders  # noqa: E402
from django.contrib.staticfiles.handlers import StaticFilesHandler  # noqa: E402
from django.core import management, wsgi  # noqa: E402
from django.views import static  # noqa: E402
from horizon import themes  # noqa: E402
from horizon.utils import scss_filter  # noqa: E402

from tests.interop.dashboard import content_policy, loopback  # noqa: E402


class StaticFiles(StaticFilesHandler):  # type: ignore[misc] # Django has no types
    """Horizon, and the files that were collected, as a web server has them."""

    def serve(self, request: Any) -> Any:
        """Return a file."""
        return static.serve(request, self.file_path(request.path), settings.STATIC_ROOT)


class _Listed:
    """Files of a finder, looked for once: Horizon's compiler lists all for each import."""

    def __init__(self, finder: Any) -> None:
        self._files = list(finder.list([]))

    def list(self, ignored: object) -> list[Any]:
        del ignored
        return self._files


def prepare() -> None:
    """Collect and compress the static files."""
    management.call_command("collectstatic", interactive=False, link=True, verbosity=0)
    listed = [_Listed(finder) for finder in finders.get_finders()]
    scss_filter.get_finders = lambda: listed
    management.call_command("compress", force=True, verbosity=1)
    compile_dark()


def compile_dark() -> None:
    """Compile the style of the dark theme, which its template names.

    Horizon's own way has one style for all themes: the workers of django-compressor do not get
    the theme, which is in a variable of the thread that started them.
    """
    themes._local.theme = "dark"
    names = ["dashboard/scss/themes.scss", *settings.HORIZON_CONFIG["scss_files"]]
    parts = [scss_filter.ScssFilter("", filename=finders.find(name)).input() for name in names]
    (pathlib.Path(settings.STATIC_ROOT) / "dark.css").write_text("\n".join(parts))


def main() -> None:
    """Serve."""
    prepare()
    application: Callable[..., Iterable[bytes]] = StaticFiles(wsgi.get_wsgi_application())
    with loopback.listen(content_policy.enforced(application)) as server:
        folder = pathlib.Path(os.environ["ACSTOR_TEST_HORIZON"])
        (folder / "port.new").write_text(str(server.server_port))
        (folder / "port.new").rename(folder / "port")
        server.serve_forever()


if __name__ == "__main__":
    main()
