//! The encoder of zstd frames: libzstd, which sees content that is already verified.

use zstd_safe::{CCtx, CParameter, compress_bound};

/// Smallest and largest window of a frame, as powers of two; the latter is the largest chunk.
const WINDOW_LOGS: (u32, u32) = (10, acstor_types::limits::CHUNK_SIZE_MAX.ilog2());

/// Encoder with its memory.
pub(crate) struct ZstdEncoder {
    context: CCtx<'static>,
    level: Option<i32>,
    window_log: Option<u32>,
}

impl ZstdEncoder {
    /// An encoder; `None` where there is no memory for it.
    pub(crate) fn create() -> Option<Self> {
        CCtx::try_create().map(|context| Self { context, level: None, window_log: None })
    }

    /// Bytes that a frame of `plain_len` bytes can have.
    pub(crate) fn bound(plain_len: usize) -> usize {
        compress_bound(plain_len)
    }

    /// Write the frame of `plain` to `frame` and return its length; `None` where that failed.
    ///
    /// The window covers the chunk, which makes the frame a single segment: a decoder then needs
    /// no memory but its output.
    pub(crate) fn encode(&mut self, level: i32, plain: &[u8], frame: &mut [u8]) -> Option<usize> {
        let window_log = plain.len().max(1).next_power_of_two().ilog2();
        let window_log = window_log.clamp(WINDOW_LOGS.0, WINDOW_LOGS.1);
        if self.level != Some(level) {
            self.context.set_parameter(CParameter::CompressionLevel(level)).ok()?;
            self.level = Some(level);
        }
        if self.window_log != Some(window_log) {
            self.context.set_parameter(CParameter::WindowLog(window_log)).ok()?;
            self.window_log = Some(window_log);
        }
        self.context.compress2(frame, plain).ok()
    }
}
