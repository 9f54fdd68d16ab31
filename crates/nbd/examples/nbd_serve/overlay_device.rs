//! A volume whose origin keeps nothing: the local log alone, behind the server.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use acstor_overlay::{Durability, Opening, OriginSink, SinkError, Volume, VolumeConfig};
use acstor_types::{ChunkSize, DiskId};
use bytes::Bytes;
use tokio::runtime::Handle;

/// The data plane's own default.
const SEGMENT_BYTES: u64 = 64 << 20;

struct NoOrigin;

impl OriginSink for NoOrigin {
    fn put_if_absent(&self, _key: &str, _parts: &[Bytes]) -> Result<bool, SinkError> {
        Ok(true)
    }

    fn get(&self, _key: &str, _size_max: u64) -> Result<Option<Bytes>, SinkError> {
        Ok(None)
    }

    fn list(&self, _prefix: &str) -> Result<Vec<String>, SinkError> {
        Ok(Vec::new())
    }
}

/// Opens a volume of `size_bytes` with its local log in `directory`; it is pushed every `period_s`
/// seconds.
pub(crate) fn open(
    directory: &Path,
    size_bytes: u64,
    period_s: f64,
    runtime: &Handle,
) -> Result<Arc<Volume>, Box<dyn Error>> {
    let config = VolumeConfig {
        directory: directory.to_owned(),
        quota_bytes: 4 * size_bytes + 8 * SEGMENT_BYTES,
        reserve_bytes: 0,
        segment_bytes: SEGMENT_BYTES,
        push_rate: None,
        io_timeout: None,
        chunk_size: ChunkSize::DEFAULT,
    };
    let opening = Opening {
        volume: DiskId::from_bytes([1; 16]),
        epoch: 1,
        next: 1,
        size_bytes,
        manifest: None,
        logs: Vec::new(),
        durability: Durability { period_s, ..Durability::default() },
    };
    Ok(Volume::open(config, opening, None, Arc::new(NoOrigin), runtime.clone())?)
}
