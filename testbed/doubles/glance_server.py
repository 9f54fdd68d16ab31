"""The image API of Glance, as far as it is used, over HTTP on this machine.

What it answers follows glance/api/v2/{images,image_data}.py; what goes wrong is told by hand.
"""

import json
import threading
import urllib.parse
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from acstor.registrar.image_service.base import ServiceImage
from acstor.registrar.image_service.memory import MemoryImageService


class GlanceServer(ThreadingHTTPServer):
    """Serves the images of a service in memory.

    :param page_size_max: Glance's ``api_limit_max``.
    """

    daemon_threads = True

    def __init__(self, images: MemoryImageService, page_size_max: int = 3) -> None:
        self.images = images
        self.page_size_max = page_size_max
        self.paths: list[str] = []
        self.tokens: list[str | None] = []
        self.before: Callable[[Any], bool] = lambda request: False
        """Called with each request; True: it has answered itself."""
        super().__init__(("127.0.0.1", 0), _Handler)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Endpoint."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def close(self) -> None:
        """Stop."""
        self.shutdown()
        self.server_close()
        self._thread.join(10)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away are part of the tests."""


def described(image: ServiceImage) -> dict[str, Any]:
    """Return an image as the API has it, with show_multiple_locations where it has locations."""
    locations = [{"url": url, "metadata": {}} for url in image.locations]
    return {
        **({"locations": locations} if locations else {}),
        **image.properties,
        "id": image.id,
        "name": image.name,
        "status": image.status,
        "disk_format": image.disk_format,
        "container_format": image.container_format,
        "size": image.size_bytes,
        "virtual_size": None,
        "checksum": image.md5,
        "os_hash_algo": image.hash_algorithm,
        "os_hash_value": image.hash_value,
        "owner": image.owner or None,
        "visibility": image.visibility,
        "os_hidden": image.is_hidden,
        "updated_at": image.updated_at,
        "tags": [],
        "min_disk": 0,
        "self": f"/v2/images/{image.id}",
        "schema": "/v2/schemas/image",
    }


class _Handler(BaseHTTPRequestHandler):
    server: GlanceServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        self.server.tokens.append(self.headers.get("X-Auth-Token"))
        if self.server.before(self):
            return
        url = urllib.parse.urlsplit(self.path)
        parts = url.path.strip("/").split("/")
        if parts[:2] != ["v2", "images"]:
            self.answer(404, {})
        elif len(parts) == 2:
            self._list(dict(urllib.parse.parse_qsl(url.query)))
        elif (image := self.server.images.find_image(parts[2])) is None:
            self.answer(404, {})
        elif len(parts) == 3:
            self.answer(200, described(image))
        else:
            self._send_data(image)

    def _list(self, query: dict[str, str]) -> None:
        assert query["visibility"] == "all", "images of others would be left out"
        wanted = [
            image
            for image in self.server.images.list_images()
            if image.is_hidden == (query["os_hidden"] == "true")
        ]
        ids = [image.id for image in wanted]
        start = 0
        if marker := query.get("marker"):
            if marker not in ids:
                self.answer(400, {})
                return
            start = ids.index(marker) + 1
        limit = min(int(query["limit"]), self.server.page_size_max)
        page = wanted[start : start + limit]
        answer: dict[str, Any] = {"images": [described(image) for image in page]}
        if len(page) == limit:
            answer["next"] = f"/v2/images?marker={page[-1].id}"
        self.answer(200, answer)

    def _send_data(self, image: ServiceImage) -> None:
        if image.size_bytes is None:
            self.send_response(204)
            self.end_headers()
            return
        with self.server.images.open_data(image.id) as data:
            content = data.read(1 << 30)
        wanted = self.headers.get("Range")
        if wanted is None:
            self.answer_bytes(200, content)
        elif not self.server.images.has_ranges:
            self.answer(400, {})
        else:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                self.answer(416, {})
                return
            stated = f"bytes {start}-{len(content) - 1}/{len(content)}"
            self.answer_bytes(206, content[start:], {"Content-Range": stated})

    def answer(self, status: int, body: Any) -> None:
        self.answer_bytes(status, json.dumps(body).encode())

    def answer_bytes(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        pass
