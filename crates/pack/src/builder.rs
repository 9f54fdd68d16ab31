//! A pack being filled, as the buffers that are then written one after the other.

use acstor_types::{ChunkSize, Codec, Digest, PackClass, PackId, PackSalt, StoredChunk};
use bytes::Bytes;

use crate::layout::PackLayout;
use crate::pack_error::PackError;
use crate::stored_form::StoredForm;
use crate::table::PackTable;

/// One pack being filled.
#[derive(Debug)]
pub struct PackBuilder {
    layout: PackLayout,
    parts: Vec<Bytes>,
}

/// A pack that is ready to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedPack {
    /// Its id.
    pub id: PackId,
    /// Its header and its table.
    pub table: PackTable,
    /// Its bytes, to be written in this order: header, chunks, padding, table.
    pub parts: Vec<Bytes>,
}

impl PackBuilder {
    /// An empty pack of at most `budget` bytes; one chunk always fits. See [`PackLayout::new`].
    pub fn new(class: PackClass, chunk_size: ChunkSize, salt: PackSalt, budget: u64) -> Self {
        let layout = PackLayout::new(class, chunk_size, salt, budget);
        Self { layout, parts: Vec::new() }
    }

    /// Places and sizes so far.
    pub fn layout(&self) -> &PackLayout {
        &self.layout
    }

    /// Append a chunk in the form that a [`crate::ChunkCompressor`] gave `plain`; `None` where it
    /// does not fit.
    ///
    /// What is stored as it is is not copied.
    pub fn push(
        &mut self,
        digest: Digest,
        form: &StoredForm<'_>,
        plain: &Bytes,
    ) -> Option<StoredChunk> {
        let chunk = self.layout.push(digest, form)?;
        self.parts.push(match form.codec {
            Codec::Plain if plain.len() == form.bytes.len() => plain.clone(),
            _ => Bytes::copy_from_slice(form.bytes),
        });
        Some(chunk)
    }

    /// Append a chunk of another pack as it is stored there; `None` where it does not fit.
    pub fn copy(&mut self, chunk: &StoredChunk, stored: Bytes) -> Option<StoredChunk> {
        let copied = self.layout.push(chunk.digest, &StoredForm::copied(chunk, &stored))?;
        self.parts.push(stored);
        Some(copied)
    }

    /// Close the pack; `None` where it has no chunk.
    ///
    /// # Errors
    /// [`PackError`] where what was pushed makes no pack, which the layout rules out.
    pub fn seal(self) -> Option<Result<SealedPack, PackError>> {
        let sealed = self.layout.seal()?;
        let padding = u64::from(sealed.header.table_offset) - sealed.data_end;
        let records = Bytes::from(sealed.records);
        let mut parts = Vec::with_capacity(self.parts.len() + 3);
        parts.push(Bytes::from(sealed.header.encode()));
        parts.extend(self.parts);
        parts.push(Bytes::from(vec![0; padding as usize]));
        parts.push(records.clone());
        let table = PackTable::parse(sealed.header, &sealed.id, records);
        Some(table.map(|table| SealedPack { id: sealed.id, table, parts }))
    }
}
