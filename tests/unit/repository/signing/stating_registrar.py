"""A registrar with a key, which states what is registered, for tests of both ends."""

from acstor.registrar.index_statements import IndexStatements
from acstor.registrar.index_upkeep import IndexUpkeep
from acstor.repository import layout
from acstor.repository.images import index_statement
from acstor.repository.images.image_index import INDEX_REF, ImageIndex
from acstor.repository.images.index_statement import IndexStatement
from acstor.repository.images.record_writer import SignedRecords
from acstor.repository.repository import Repository
from tests.unit.repository import images
from tests.unit.repository.signing.keys import private, trusted

NOW = 1795261707.5


class Registrar:
    """A registrar with a key, and hosts that write to its origin."""

    def __init__(self, repository: Repository, number: int = 0) -> None:
        self.now, self.elapsed = NOW, 1000.0
        self.repository = repository
        self.records = SignedRecords(private(number), trusted(0), lambda: self.now)
        self.lead()

    def lead(self) -> None:
        statements = IndexStatements(
            self.repository, self.records, lambda: self.now, lambda: self.elapsed
        )
        self.upkeep = IndexUpkeep(self.repository.image_index, lambda: self.elapsed, statements)

    def register(self, number: int, content: bytes | None = None) -> bytes:
        """Register an image, or write its record as it is; return the record."""
        images.register(self.repository, number, images.disk(number))
        image = self.repository.get_image(images.image_id(number))
        written = content or self.records.encode(self.repository, image.id, image.record, None)
        with self.repository.image_index.changing(image.id):
            self.put(number, written)
        return written

    def put(self, number: int, content: bytes | None) -> None:
        """Write a record without telling the index."""
        name = layout.image_ref(images.image_id(number))
        ref = self.repository.origin.get_ref(name)
        self.repository.origin.swap_ref(name, ref.token if ref else None, content)

    def index(self) -> ImageIndex:
        ref = self.repository.origin.get_ref(INDEX_REF)
        assert ref is not None
        return ImageIndex.parse(ref.content)

    def stated(self) -> IndexStatement:
        text = self.index().statement
        assert text is not None
        keys = trusted(0, 1, 2)
        return index_statement.verify(text.encode(), self.repository.format.id, keys).statement

    def keep(self, later: float = 0.0) -> IndexStatement:
        self.now += later
        self.elapsed += later
        self.upkeep.keep()
        return self.stated()
