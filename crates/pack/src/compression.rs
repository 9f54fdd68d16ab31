//! The choice of a chunk's stored form.

use acstor_types::{Codec, StoredChunk};

use crate::stored_form::{StoredForm, compressed_len_max};
use crate::zstd_encoder::ZstdEncoder;

/// Level of zstd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ZstdLevel(i32);

impl ZstdLevel {
    /// The quickest level: those below are slower than LZ4 where they are as small.
    pub const MIN: ZstdLevel = ZstdLevel(-5);
    /// The level that decides whether a chunk is worth a higher one.
    pub const TRIAL: ZstdLevel = ZstdLevel(1);
    /// The highest level: those above gain nothing for chunks and take more memory.
    pub const MAX: ZstdLevel = ZstdLevel(19);

    /// Return the level of a number, or `None` when it is out of range.
    pub const fn new(level: i32) -> Option<ZstdLevel> {
        if level >= Self::MIN.0 && level <= Self::MAX.0 { Some(ZstdLevel(level)) } else { None }
    }

    /// Its number.
    pub const fn get(self) -> i32 {
        self.0
    }
}

/// Work that is spent on a chunk's stored form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompressionPolicy {
    /// LZ4: for what is written while somebody waits.
    Fast,
    /// zstd: for what is written once and read often, or rewritten.
    Dense(ZstdLevel),
}

impl CompressionPolicy {
    /// Returns whether a rewriting should try to store the chunk in a smaller form.
    ///
    /// It should not where that was tried already, and not where this policy has nothing better.
    pub fn improves(&self, chunk: &StoredChunk) -> bool {
        match chunk.codec {
            Codec::Plain => !chunk.is_incompressible,
            Codec::Lz4 => matches!(self, CompressionPolicy::Dense(_)),
            Codec::Zstd => false,
        }
    }
}

/// Compressor of chunks, with memory that serves one chunk after the other.
pub struct ChunkCompressor {
    policy: CompressionPolicy,
    zstd: Option<ZstdEncoder>,
    trial: Vec<u8>,
    dense: Vec<u8>,
}

/// Result of compressing into a buffer.
enum Attempt {
    /// It takes so many bytes, at least an eighth less.
    Paid(usize),
    /// It does not become smaller by an eighth.
    NotWorthIt,
    /// The encoder failed; another attempt may not.
    Failed,
}

impl ChunkCompressor {
    /// A compressor; it allocates at the first chunk.
    pub const fn new(policy: CompressionPolicy) -> Self {
        Self { policy, zstd: None, trial: Vec::new(), dense: Vec::new() }
    }

    /// Its policy.
    pub const fn policy(&self) -> CompressionPolicy {
        self.policy
    }

    /// Return the form in which to store a chunk.
    pub fn compress<'a>(&'a mut self, plain: &'a [u8]) -> StoredForm<'a> {
        let (attempt, codec) = match self.policy {
            CompressionPolicy::Fast => (lz4(plain, &mut self.trial), Codec::Lz4),
            CompressionPolicy::Dense(level) => {
                (self.try_zstd(level.min(ZstdLevel::TRIAL), plain), Codec::Zstd)
            }
        };
        let trial_len = match attempt {
            Attempt::Paid(len) => len,
            Attempt::NotWorthIt => return StoredForm::new(plain, Codec::Plain, true),
            Attempt::Failed => return StoredForm::new(plain, Codec::Plain, false),
        };
        if let CompressionPolicy::Dense(level) = self.policy
            && level > ZstdLevel::TRIAL
            && let Some(len) = self.denser(level, plain, trial_len)
        {
            return StoredForm::new(&self.dense[..len], Codec::Zstd, false);
        }
        StoredForm::new(&self.trial[..trial_len], codec, false)
    }

    /// Return the form in which a rewriting stores a chunk of another pack.
    ///
    /// `stored` and `plain` are its verified bytes. Where [`CompressionPolicy::improves`] says no,
    /// `plain` is not read and may be empty.
    pub fn rewrite<'a>(
        &'a mut self,
        chunk: &StoredChunk,
        stored: &'a [u8],
        plain: &'a [u8],
    ) -> StoredForm<'a> {
        if !self.policy.improves(chunk) {
            return StoredForm::copied(chunk, stored);
        }
        match (chunk.codec, self.policy) {
            // LZ4 has paid, so that no trial is needed.
            (Codec::Lz4, CompressionPolicy::Dense(level)) => {
                match self.denser(level, plain, stored.len()) {
                    Some(len) => StoredForm::new(&self.dense[..len], Codec::Zstd, false),
                    None => StoredForm::copied(chunk, stored),
                }
            }
            _ => self.compress(plain),
        }
    }

    /// Compress at a level into the second buffer; `None` where that takes `known_len` bytes or more.
    fn denser(&mut self, level: ZstdLevel, plain: &[u8], known_len: usize) -> Option<usize> {
        match zstd(&mut self.zstd, level, plain, &mut self.dense) {
            Attempt::Paid(len) if len < known_len => Some(len),
            _ => None,
        }
    }

    fn try_zstd(&mut self, level: ZstdLevel, plain: &[u8]) -> Attempt {
        zstd(&mut self.zstd, level, plain, &mut self.trial)
    }
}

fn lz4(plain: &[u8], out: &mut Vec<u8>) -> Attempt {
    make_room(out, lz4_flex::block::get_maximum_output_size(plain.len()));
    attempt(plain, lz4_flex::block::compress_into(plain, out).ok())
}

fn zstd(
    encoder: &mut Option<ZstdEncoder>,
    level: ZstdLevel,
    plain: &[u8],
    out: &mut Vec<u8>,
) -> Attempt {
    if encoder.is_none() {
        *encoder = ZstdEncoder::create();
    }
    let Some(encoder) = encoder else { return Attempt::Failed };
    make_room(out, ZstdEncoder::bound(plain.len()));
    attempt(plain, encoder.encode(level.get(), plain, out))
}

fn attempt(plain: &[u8], len: Option<usize>) -> Attempt {
    match len {
        None => Attempt::Failed,
        Some(len) if len <= compressed_len_max(plain.len()) => Attempt::Paid(len),
        Some(_) => Attempt::NotWorthIt,
    }
}

fn make_room(buffer: &mut Vec<u8>, len: usize) {
    if buffer.len() < len {
        buffer.resize(len, 0);
    }
}
