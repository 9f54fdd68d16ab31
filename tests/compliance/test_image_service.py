"""One suite that every image service passes, see acstor/registrar/image_service/base.py."""

import dataclasses
from collections.abc import Callable, Iterator

import pytest
from keystoneauth1 import adapter, noauth, session

from acstor import exception
from acstor.registrar.image_service import base, faulty, memory, retrying, watched
from acstor.registrar.image_service.glance import GlanceImageService
from testbed.doubles.glance_server import GlanceServer
from testbed.doubles.registrar_cloud import content_of, describe

CONTENT = content_of(1, 300_000)


class ServedGlance(GlanceImageService):
    """The real client with a server of its own."""

    def __init__(self, images: memory.MemoryImageService) -> None:
        self._server = GlanceServer(images)
        connection = session.Session(auth=noauth.NoAuth(endpoint=self._server.url))
        super().__init__(adapter.Adapter(connection, service_type="image"), page_size=2)

    def close(self) -> None:
        super().close()
        self._server.close()


Wrap = Callable[[memory.MemoryImageService], base.ImageService]
FACTORIES: dict[str, Wrap] = {
    "memory": lambda images: images,
    "glance": ServedGlance,
    "faulty": faulty.FaultyImageService,
    "watched": watched.WatchedImageService,
    "retrying": lambda images: retrying.RetryingImageService(images, 5.0, 3),
    "retrying over faults": lambda images: retrying.RetryingImageService(
        faulty.FaultyImageService(
            images,
            [
                faulty.Fault(operation, faulty.Effect.ERROR, call=call)
                for operation in (faulty.Operation.LIST, faulty.Operation.FIND)
                for call in (1, 3)
            ],
        ),
        60.0,
        5,
        sleep=lambda seconds: None,
    ),
}


@pytest.fixture
def images() -> memory.MemoryImageService:
    return memory.MemoryImageService()


@pytest.fixture(params=sorted(FACTORIES))
def service(
    request: pytest.FixtureRequest, images: memory.MemoryImageService
) -> Iterator[base.ImageService]:
    opened = FACTORIES[request.param](images)
    yield opened
    opened.close()


def image_of(number: int, **fields: object) -> base.ServiceImage:
    return describe(f"00000000-0000-4000-8000-{number:012}", CONTENT, **fields)


def test_all_images_are_listed_whoever_may_see_them(
    service: base.ImageService, images: memory.MemoryImageService
) -> None:
    assert service.list_images() == []
    put = {}
    for number in range(13):
        image = image_of(
            number,
            owner=("", "3f6d", "admin")[number % 3],
            visibility=("public", "private", "shared", "community")[number % 4],
            is_hidden=number % 3 == 0,
            status=("active", "queued", "deactivated")[number % 3],
            properties={"acstor_pin": "true"} if number % 2 else {},
        )
        images.put(image, CONTENT)
        put[image.id] = image
    listed = service.list_images()
    assert {image.id: image for image in listed} == put
    assert len(listed) == len(put)


def test_image_is_found_with_everything_that_is_said_of_it(
    service: base.ImageService, images: memory.MemoryImageService
) -> None:
    image = image_of(1, properties={"os_encrypt_format": "LUKS", "kernel_id": image_of(2).id})
    images.put(image, CONTENT)
    bare = dataclasses.replace(
        base.ServiceImage(image_of(3).id, status="queued"), visibility="private"
    )
    images.put(bare)
    assert service.find_image(image.id) == image
    assert service.find_image(bare.id) == bare
    assert service.find_image(image_of(4).id) is None


@pytest.mark.parametrize("offset", [0, 1, 65536, len(CONTENT) - 1])
def test_data_are_read_from_where_they_are_asked_for(
    service: base.ImageService, images: memory.MemoryImageService, offset: int
) -> None:
    image = image_of(1)
    images.put(image, CONTENT)
    with service.open_data(image.id, offset) as data:
        assert data.offset == offset
        assert read_all(data) == CONTENT[offset:]


def test_service_that_cannot_begin_in_the_middle_begins_at_the_start(
    service: base.ImageService, images: memory.MemoryImageService
) -> None:
    images.has_ranges = False
    image = image_of(1)
    images.put(image, CONTENT)
    with service.open_data(image.id, 4096) as data:
        assert data.offset == 0
        assert read_all(data) == CONTENT


def test_data_that_are_not_there_are_an_error_of_their_kind(
    service: base.ImageService, images: memory.MemoryImageService
) -> None:
    with pytest.raises(exception.NotFoundError):
        service.open_data(image_of(1).id)
    images.put(image_of(2, size_bytes=None, status="queued"))
    with pytest.raises(exception.UnavailableError):
        service.open_data(image_of(2).id)


def test_reading_may_be_given_up(
    service: base.ImageService, images: memory.MemoryImageService
) -> None:
    image = image_of(1)
    images.put(image, CONTENT)
    with service.open_data(image.id) as data:
        assert data.read(10) == CONTENT[:10]
    assert service.find_image(image.id) == image


def read_all(data: base.ImageData) -> bytes:
    parts = []
    while part := data.read(7000):
        assert len(part) <= 7000
        parts.append(part)
    return b"".join(parts)
