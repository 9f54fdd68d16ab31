//! Packs of version 2: one being filled in a buffer of Python's, and headers.

use acstor_pack::{PackHeader as Header, PackLayout, PackTable, SealedLayout};
use acstor_types::{PACK_DATA_OFFSET, PackClass, PackId, StoredChunk};
use bytes::Bytes;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rayon::prelude::*;

use super::buffer::Buffer;
use super::chunk_records::ChunkRecords;
use super::pack::salt_of;
use super::stored_chunks::StoredChunks;
use super::{Failure, chunk_size_of, digest_of, invalid};
use crate::errors;

pub(super) fn class_of(name: &str) -> Result<PackClass, Failure> {
    let class = PackClass::ALL.into_iter().find(|class| class.as_str() == name);
    class.ok_or_else(|| invalid(format!("there is no class of packs named {name:?}")))
}

struct Filling {
    layout: PackLayout,
    buffer: Buffer,
}

/// One pack of version 2 being filled.
#[pyclass(frozen, module = "acstor._dataplane")]
pub(crate) struct PackWriter {
    /// `None` once the pack is closed.
    filling: Mutex<Option<Filling>>,
}

#[pymethods]
impl PackWriter {
    #[new]
    fn new(
        buffer: &Bound<'_, PyAny>,
        chunk_size: u32,
        pack_class: &str,
        salt: &[u8],
    ) -> PyResult<PackWriter> {
        let chunk_size = chunk_size_of(chunk_size)?;
        let (class, salt) = (class_of(pack_class)?, salt_of(salt)?);
        let buffer = Buffer::writable(buffer)?;
        let (budget, least) = (buffer.bytes().len() as u64, PackLayout::size_min(chunk_size));
        if budget < least {
            return Err(invalid(format!("a pack with one chunk has {least} bytes")).into());
        }
        let layout = PackLayout::new(class, chunk_size, salt, budget);
        Ok(PackWriter { filling: Mutex::new(Some(Filling { layout, buffer })) })
    }

    #[getter]
    fn chunk_count(&self) -> PyResult<u32> {
        self.with(|filling| Ok(filling.layout.chunk_count()))
    }

    #[getter]
    fn room(&self) -> PyResult<u32> {
        self.with(|filling| Ok(filling.layout.room()))
    }

    /// Appends chunks from `first` on; returns the position of the first that does not fit.
    #[pyo3(signature = (chunks, first=0))]
    fn append(&self, py: Python<'_>, chunks: &StoredChunks, first: usize) -> PyResult<usize> {
        py.detach(|| self.with(|filling| filling.append(chunks, first)))
    }

    /// Closes the pack; returns its id, the size of what is in the buffer, and its table.
    fn seal<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyBytes>, u32, ChunkRecords)> {
        // Taken out first: releasing the buffer needs the GIL, which must not be waited for here.
        let mut guard = self.filling.lock();
        let Some(filling) = guard.take_if(|filling| filling.layout.chunk_count() > 0) else {
            let reason = if guard.is_some() { "the pack is empty" } else { "the pack is closed" };
            return Err(invalid(reason).into());
        };
        drop(guard);
        let (sealed, records) = filling.seal()?;
        Ok((PyBytes::new(py, sealed.id.0.as_bytes()), sealed.header.table_offset, records))
    }
}

impl PackWriter {
    fn with<T>(&self, work: impl FnOnce(&mut Filling) -> Result<T, Failure>) -> PyResult<T> {
        let mut guard = self.filling.lock();
        let done = guard.as_mut().ok_or_else(|| invalid("the pack is closed")).and_then(work);
        drop(guard);
        Ok(done?)
    }
}

impl Filling {
    fn append(&mut self, chunks: &StoredChunks, first: usize) -> Result<usize, Failure> {
        let forms = chunks.forms.get(first..).ok_or_else(|| invalid("past the last chunk"))?;
        if forms.iter().any(|form| !self.layout.is_possible(&form.borrow())) {
            return Err(invalid("the chunks are not of the pack's chunk size"));
        }
        let mut rest = &mut self.buffer.bytes_mut()[self.layout.end() as usize..];
        let mut copies = Vec::with_capacity(forms.len());
        for form in forms {
            let stored = form.borrow();
            if self.layout.push(form.digest, &stored).is_none() {
                break;
            }
            let (place, behind) = rest.split_at_mut(stored.bytes.len());
            copies.push((place, stored.bytes));
            rest = behind;
        }
        let taken = copies.len();
        copies.into_par_iter().for_each(|(place, bytes)| place.copy_from_slice(bytes));
        Ok(first + taken)
    }

    fn seal(mut self) -> Result<(SealedLayout, ChunkRecords), Failure> {
        let sealed = self.layout.seal().ok_or_else(|| invalid("the pack is empty"))?;
        let bytes = self.buffer.bytes_mut();
        bytes[..PACK_DATA_OFFSET as usize].copy_from_slice(&sealed.header.encode());
        bytes[sealed.data_end as usize..sealed.header.table_offset as usize].fill(0);
        let (records, _) = sealed.records.as_chunks();
        let chunks = records.iter().filter_map(|record| StoredChunk::from_bytes(record).ok());
        let chunks = ChunkRecords::of(chunks.collect());
        Ok((sealed, chunks))
    }
}

/// Header of a pack of version 2.
#[pyclass(frozen, module = "acstor._dataplane")]
pub(crate) struct PackHeader {
    header: Header,
}

impl PackHeader {
    pub(super) fn header(&self) -> &Header {
        &self.header
    }
}

#[pymethods]
impl PackHeader {
    #[staticmethod]
    fn parse(header: &Bound<'_, PyAny>) -> PyResult<PackHeader> {
        let buffer = Buffer::readable(header)?;
        let header = Header::parse(buffer.bytes());
        Ok(PackHeader { header: header.map_err(|error| errors::raise(error.kind(), error))? })
    }

    #[getter]
    fn pack_class(&self) -> &'static str {
        self.header.class.as_str()
    }

    #[getter]
    fn chunk_size(&self) -> u32 {
        self.header.chunk_size.as_u32()
    }

    #[getter]
    fn chunk_count(&self) -> u32 {
        self.header.chunk_count
    }

    #[getter]
    fn salt<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.header.salt)
    }

    #[getter]
    fn table_offset(&self) -> u32 {
        self.header.table_offset
    }

    #[getter]
    fn table_size(&self) -> u64 {
        self.header.table_len()
    }

    #[getter]
    fn size_bytes(&self) -> u64 {
        self.header.size_bytes()
    }

    /// Reads the table of the pack of that id.
    fn parse_table(
        &self,
        py: Python<'_>,
        pack_id: &[u8],
        table: &Bound<'_, PyAny>,
    ) -> PyResult<ChunkRecords> {
        let id = PackId(digest_of(pack_id)?);
        let buffer = Buffer::readable(table)?;
        let parsed = py.detach(|| {
            PackTable::parse(self.header, &id, Bytes::copy_from_slice(buffer.bytes()))
                .map(|table| ChunkRecords::of(table.chunks().collect()))
        });
        parsed.map_err(|error| errors::raise(error.kind(), error))
    }
}
