//! The origin of the read path.

use std::sync::Arc;

use acstor_readpath::{OriginError, OriginRange, OriginSource};
use acstor_types::{Digest, PackId};
use bytes::BytesMut;

use crate::binding::{Functions, load};
use crate::client::Client;
use crate::destination::Destination;
use crate::layout::key_of;
use crate::object_reader::ObjectReader;
use crate::{RadosError, RadosLogWriter, RadosSettings};

/// Reads packs, manifests and lists of moved chunks from a cluster.
///
/// The cluster is connected to at the first read, and again at the next one where that failed: one that
/// is away keeps no host from starting.
#[derive(Debug)]
pub struct RadosPackReader {
    client: Arc<Client>,
    repository: String,
    objects: ObjectReader,
}

impl RadosPackReader {
    /// Loads librados, unless it is loaded.
    ///
    /// # Errors
    /// [`RadosError::Library`], or [`RadosError::ZeroByte`].
    pub fn new(settings: &RadosSettings) -> Result<RadosPackReader, RadosError> {
        RadosPackReader::with(load()?, settings)
    }

    pub(crate) fn with(
        functions: &'static Functions,
        settings: &RadosSettings,
    ) -> Result<RadosPackReader, RadosError> {
        let client = Arc::new(Client::new(functions, settings)?);
        let repository = settings.namespace.clone();
        let objects = ObjectReader::new(client.clone(), &repository);
        Ok(RadosPackReader { client, repository, objects })
    }

    /// Fills `buffer` with the bytes of the object of a key, as far as that reaches; returns their number.
    ///
    /// # Errors
    /// [`RadosError`]; the buffer then has any content.
    pub fn read_object(
        &self,
        key: &str,
        offset: u64,
        buffer: &mut BytesMut,
    ) -> Result<usize, RadosError> {
        self.objects.read(key, offset, &mut Destination::new([buffer]))
    }

    /// Returns a writer of logs to the same repository, over the same connection.
    pub fn log_writer(&self) -> RadosLogWriter {
        RadosLogWriter::new(self.client.clone(), &self.repository)
    }

    /// Ends the connection, when the calls that are under way have ended. Later ones fail, of writers too.
    pub fn close(&self) {
        self.client.close();
    }

    fn fill(
        &self,
        folder: &str,
        name: &Digest,
        offset: u64,
        mut into: Destination<'_>,
    ) -> Result<(), OriginError> {
        let end = offset.saturating_add(into.len() as u64);
        let read = self.objects.read(&key_of(folder, name), offset, &mut into);
        let count = read.map_err(|error| error.into_origin_error(&name.to_string(), end))?;
        if count < into.len() {
            return Err(OriginError::ShortRead { pack: name.to_string(), end });
        }
        Ok(())
    }
}

impl OriginSource for RadosPackReader {
    fn read(&self, pack: &PackId, ranges: &mut [OriginRange]) -> Result<(), OriginError> {
        let offset = ranges.first().map_or(0, |range| range.offset);
        let into = Destination::new(ranges.iter_mut().map(|range| &mut range.buffer));
        self.fill("packs", &pack.0, offset, into)
    }

    fn read_manifest(&self, name: &Digest, range: &mut OriginRange) -> Result<(), OriginError> {
        let offset = range.offset;
        self.fill("manifests", name, offset, Destination::new([&mut range.buffer]))
    }

    fn read_moved(
        &self,
        pack: &PackId,
        offset: u64,
        buffer: &mut BytesMut,
    ) -> Result<(), OriginError> {
        self.fill("moved", &pack.0, offset, Destination::new([buffer]))
    }
}

#[cfg(test)]
mod tests;
