//! A disk as the front ends read it.

use acstor_runclock::RunInstant;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use acstor_types::Digest;
use bytes::Bytes;
use tokio::time::Instant;

use crate::ahead::disk_boots::DiskBoots;
use crate::ahead::prefetch::Prefetcher;
use crate::ahead::read_ahead;
use crate::ahead::read_trace::ChunkNote;
use crate::fetch::flight::{Flight, FlightFailure, Obtained, Priority};
use crate::fetch::sources::{Sources, Want};
use crate::keeping::host_chunks::AtHost;
use crate::keeping::store_reader::Reading;
use crate::view::PrepareFuture;
use crate::view::attachment::DiskRecords;
use crate::view::disk::{Disk, Piece};
use crate::{
    BlockView, ExtentKind, LocalChunk, ReadDone, ReadError, ReadFuture, Segment, Tier, TryRead,
    limits,
};

/// Reads one disk through one read path.
pub(crate) struct DiskView {
    pub(crate) disk: Arc<Disk>,
    pub(crate) sources: Arc<Sources>,
    /// True if its reads are those of guests, of which boots and streams are learnt.
    pub(crate) is_recorded: bool,
}

/// Chunks and bytes per tier of one read.
#[derive(Default)]
struct Tally([(u64, u64); Tier::ALL.len()]);

impl Tally {
    fn add(&mut self, tier: Tier, len: usize) {
        let (chunks, bytes) = &mut self.0[tier.index()];
        *chunks += 1;
        *bytes += len as u64;
    }

    fn count(&self, sources: &Sources, len: usize) {
        for (tier, (chunks, bytes)) in Tier::ALL.into_iter().zip(self.0) {
            if chunks > 0 {
                sources.metrics.read_chunks(tier, chunks, bytes);
            }
        }
        sources.metrics.read_ok(len);
    }
}

/// Knowledge of a piece before anything is read or obtained.
enum AtHand {
    Zero,
    Memory(LocalChunk, Tier),
    Disk(Digest, Range<usize>),
    /// Not here, or not known to be.
    Missing,
}

/// A piece of a read that waits.
enum Slot {
    Ready(Segment, Tier),
    /// With the first byte of the chunk that is read.
    Reading(Reading, Want, usize),
    Waiting(Arc<Flight>),
}

fn segment(chunk: LocalChunk, piece: &Piece) -> Segment {
    match chunk {
        LocalChunk::Mapped(chunk) => Segment::Mapped { chunk, start: piece.start, len: piece.len },
        LocalChunk::Bytes(bytes) => Segment::Bytes(slice(&bytes, piece)),
        LocalChunk::Part(bytes) => Segment::Bytes(bytes),
    }
}

fn slice(bytes: &Bytes, piece: &Piece) -> Bytes {
    bytes.slice(piece.start..piece.start + piece.len)
}

fn push(segments: &mut Vec<Segment>, segment: Segment) {
    if let (Some(Segment::Zeros(run)), Segment::Zeros(len)) = (segments.last_mut(), &segment) {
        *run += len;
    } else {
        segments.push(segment);
    }
}

impl DiskView {
    /// Another view of the same disk.
    pub(crate) fn again(&self, is_recorded: bool) -> DiskView {
        DiskView { disk: self.disk.clone(), sources: self.sources.clone(), is_recorded }
    }

    /// Tells the read-ahead along a profile of a read; returns whether that knows what comes next.
    #[inline]
    fn note_ahead(&self, offset: u64, len: usize) -> bool {
        if !self.is_recorded || len == 0 {
            return false;
        }
        let size = self.disk.shape.chunk_size;
        let (first, last) = (size.index_of(offset), size.index_of(offset + len as u64 - 1));
        self.disk.records.read_aheads.note(&self.sources, first, last)
    }

    /// Notes that what a read wanted is on this host, and fetches what comes next.
    fn follow_hit(&self, offset: u64, len: usize) {
        if !self.note_ahead(offset, len) {
            self.follow_stream(offset, len);
        }
    }

    /// Fetches what a sequential reader reads next, where no profile leads it.
    fn follow_stream(&self, offset: u64, len: usize) {
        if self.is_recorded {
            let update = self.disk.streams.note_hit(offset, len);
            Prefetcher(&self.sources).follow(&self.disk, update);
        }
    }

    fn follow_miss(&self, offset: u64, len: usize) {
        if self.is_recorded {
            let update = self.disk.streams.note_miss(offset, len);
            Prefetcher(&self.sources).follow(&self.disk, update);
        }
    }

    fn at_hand(&self, piece: &Piece) -> AtHand {
        let digest = match self.disk.digest_at_hand(piece.index) {
            Ok(Some(digest)) => digest,
            Ok(None) => return AtHand::Zero,
            // A read that waits finds out.
            Err(_) => return AtHand::Missing,
        };
        match self.sources.chunks.find_here(&digest, piece.start, piece.len) {
            AtHost::Memory(chunk, tier) => AtHand::Memory(chunk, tier),
            AtHost::Disk(part) => AtHand::Disk(digest, part),
            AtHost::Absent => AtHand::Missing,
        }
    }

    fn obtain(&self, want: &Want, deadline: RunInstant) -> Slot {
        Slot::Waiting(self.sources.obtain(&self.disk, want, Priority::Guest, deadline))
    }

    fn check_len(&self, offset: u64, len: usize) -> Result<usize, ReadError> {
        let len = self.disk.clip(offset, len);
        if len > limits::READ_LEN_MAX {
            let error = ReadError::TooLong { len, max: limits::READ_LEN_MAX };
            self.sources.metrics.read_failed(&error);
            return Err(error);
        }
        Ok(len)
    }

    async fn read_waiting(&self, offset: u64, len: usize) -> Result<Vec<Segment>, ReadError> {
        let begin = Instant::now();
        let deadline = self.sources.clock.now() + self.sources.config.read_deadline;
        let len = self.check_len(offset, len)?;
        let is_led = self.note_ahead(offset, len);
        let wants = self.wants(offset, len, deadline).await?;
        let slots = self.join_or_start(offset, len, &wants, deadline);
        let slots = self.copy_at_hand(slots, &wants, deadline);
        let is_on_disk = slots.iter().any(|(_, slot)| matches!(slot, Slot::Reading(..)));
        let slots = self.read_store(slots, deadline).await;
        let mut waiting = None;
        if slots.iter().any(|(_, slot)| matches!(slot, Slot::Waiting(_))) {
            if !is_led {
                self.follow_miss(offset, len);
            }
            waiting = Some(self.sources.waiting_reads.enter());
        } else if is_on_disk && !is_led {
            self.follow_stream(offset, len);
        }
        let result = self.collect(offset, len, slots, begin, deadline).await;
        drop(waiting);
        if let Err(error) = &result {
            self.sources.metrics.read_failed(error);
            tracing::warn!(disk = %self.disk.id(), offset, len, "read failed: {error}");
        }
        result
    }

    /// Looks up what the pieces of a read are, which may mean a read of this host's disk.
    async fn wants(
        &self,
        offset: u64,
        len: usize,
        deadline: RunInstant,
    ) -> Result<Vec<Option<Want>>, ReadError> {
        let first = self.disk.shape.chunk_size.index_of(offset);
        let chunks = first..first + self.disk.piece_count(offset, len) as u64;
        let wants = self.sources.wants(&self.disk, chunks, Priority::Guest, deadline).await;
        wants.inspect_err(|error| {
            self.sources.metrics.read_failed(error);
            tracing::warn!(disk = %self.disk.id(), offset, len, "read failed: {error}");
        })
    }

    /// Looks every piece up and starts to read or obtain what is not at hand; nothing waits here, so
    /// that all misses of a read are under way together.
    fn join_or_start(
        &self,
        offset: u64,
        len: usize,
        wants: &[Option<Want>],
        deadline: RunInstant,
    ) -> Vec<(Piece, Slot)> {
        let look_up = |(piece, want): (Piece, &Option<Want>)| {
            let Some(want) = want else {
                return (piece, Slot::Ready(Segment::Zeros(piece.len), Tier::Zero));
            };
            let slot = match self.sources.chunks.find_here(&want.digest, piece.start, piece.len) {
                AtHost::Memory(chunk, tier) => Slot::Ready(segment(chunk, &piece), tier),
                AtHost::Disk(part) => self.read_or_obtain(*want, part, deadline),
                AtHost::Absent => self.obtain(want, deadline),
            };
            (piece, slot)
        };
        self.disk.pieces(offset, len).zip(wants).map(look_up).collect()
    }

    /// Copies what is in mapped memory where other pieces are waited for: its pages may have left
    /// memory by then.
    fn copy_at_hand(
        &self,
        slots: Vec<(Piece, Slot)>,
        wants: &[Option<Want>],
        deadline: RunInstant,
    ) -> Vec<(Piece, Slot)> {
        if slots.iter().all(|(_, slot)| matches!(slot, Slot::Ready(..))) {
            return slots;
        }
        let copy = |((piece, slot), want): ((Piece, Slot), &Option<Want>)| {
            let Slot::Ready(Segment::Mapped { chunk, start, len }, tier) = &slot else {
                return (piece, slot);
            };
            let slot = match chunk.try_copy(*start, *len) {
                Some(bytes) => Slot::Ready(Segment::Bytes(bytes), *tier),
                None => match want {
                    Some(want) => self.read_or_obtain(*want, 0..chunk.len(), deadline),
                    None => slot,
                },
            };
            (piece, slot)
        };
        slots.into_iter().zip(wants).map(copy).collect()
    }

    fn read_or_obtain(&self, want: Want, part: Range<usize>, deadline: RunInstant) -> Slot {
        let first = part.start;
        match self.sources.chunks.reader.start(&want.digest, part) {
            Some(reading) => Slot::Reading(reading, want, first),
            None => self.obtain(&want, deadline),
        }
    }

    /// Waits for this host's disk, but not long, and starts to obtain what it did not give.
    async fn read_store(
        &self,
        slots: Vec<(Piece, Slot)>,
        deadline: RunInstant,
    ) -> Vec<(Piece, Slot)> {
        let mut read = Vec::with_capacity(slots.len());
        for (piece, slot) in slots {
            let slot = match slot {
                Slot::Reading(reading, want, first) => match reading.wait().await {
                    Some(bytes) => {
                        let start = piece.start - first;
                        let bytes = bytes.slice(start..start + piece.len);
                        Slot::Ready(Segment::Bytes(bytes), Tier::Store)
                    }
                    None => self.obtain(&want, deadline),
                },
                other => other,
            };
            read.push((piece, slot));
        }
        read
    }

    /// The one piece of a read that is on the disk only, and what of its chunk is to be read.
    fn only_on_disk(&self, offset: u64, len: usize) -> Option<(Piece, Digest, Range<usize>)> {
        let mut pieces = self.disk.pieces(offset, len);
        let (Some(piece), None) = (pieces.next(), pieces.next()) else { return None };
        match self.at_hand(&piece) {
            AtHand::Disk(digest, part) => Some((piece, digest, part)),
            _ => None,
        }
    }

    /// Notes a read that was read from the disk.
    fn note_from_disk(&self, offset: u64, len: usize, piece: Piece, begin: Instant) {
        let mut tally = Tally::default();
        tally.add(Tier::Store, len);
        tally.count(&self.sources, len);
        self.note_hits(offset, len, begin, &[(piece, Tier::Store)]);
        self.follow_hit(offset, len);
    }

    async fn collect(
        &self,
        offset: u64,
        len: usize,
        slots: Vec<(Piece, Slot)>,
        begin: Instant,
        deadline: RunInstant,
    ) -> Result<Vec<Segment>, ReadError> {
        let trace = self.disk.trace();
        let mut notes = Vec::with_capacity(if trace.is_some() { slots.len() } else { 0 });
        let mut segments = Vec::with_capacity(slots.len());
        let mut tally = Tally::default();
        for (piece, slot) in slots {
            let (segment, tier, wait, peer) = match slot {
                Slot::Ready(segment, tier) => (segment, tier, Duration::ZERO, None),
                Slot::Reading(..) => {
                    return Err(ReadError::Internal("a read of the disk was not waited for"));
                }
                Slot::Waiting(flight) => {
                    let obtained = flight.wait(deadline).await;
                    let Obtained { bytes, tier, peer } =
                        obtained.map_err(|failure| self.read_error(&flight, failure))?;
                    let wait = flight.ended().saturating_duration_since(begin);
                    self.sources.metrics.read_wait(tier, wait);
                    (Segment::Bytes(slice(&bytes, &piece)), tier, wait, peer)
                }
            };
            push(&mut segments, segment);
            tally.add(tier, piece.len);
            if trace.is_some() {
                let (chunk, start, len) = (piece.index, piece.start, piece.len);
                notes.push(ChunkNote { chunk, start, len, tier, wait, peer });
            }
        }
        tally.count(&self.sources, len);
        if let Some(trace) = trace {
            let chunk_size = self.disk.shape.chunk_size.bytes() as u64;
            trace.note(begin, offset, len, chunk_size, notes.into_iter());
        }
        Ok(segments)
    }

    fn read_error(&self, flight: &Flight, failure: FlightFailure) -> ReadError {
        let digest = flight.digest;
        match failure {
            FlightFailure::Corrupt => ReadError::Corrupt { digest },
            FlightFailure::Missing => ReadError::Missing { digest },
            FlightFailure::Stopped => ReadError::Stopped,
            FlightFailure::Internal => ReadError::Internal("the task of a fetch ended early"),
            // A guest's flight ends with these only at its deadline.
            FlightFailure::Deadline | FlightFailure::Unavailable | FlightFailure::Overloaded => {
                ReadError::Deadline(self.sources.config.read_deadline.as_millis() as u64)
            }
        }
    }

    fn note_hits(&self, offset: u64, len: usize, begin: Instant, tiers: &[(Piece, Tier)]) {
        let Some(trace) = self.disk.trace() else { return };
        let notes = tiers.iter().map(|(piece, tier)| ChunkNote {
            chunk: piece.index,
            start: piece.start,
            len: piece.len,
            tier: *tier,
            wait: Duration::ZERO,
            peer: None,
        });
        let chunk_size = self.disk.shape.chunk_size.bytes() as u64;
        trace.note(begin, offset, len, chunk_size, notes);
    }
}

/// Notes that somebody opened the disk that the records are of.
pub(crate) fn note_opened(records: &DiskRecords, sources: &Sources) {
    if records.boots.opened(sources.config.boot_window) {
        sources.metrics.preload.boot();
    }
}

impl BlockView for DiskView {
    fn size_bytes(&self) -> u64 {
        self.disk.shape.size_bytes
    }

    fn try_read(&self, offset: u64, len: usize) -> Result<TryRead, ReadError> {
        let len = self.check_len(offset, len)?;
        let mut segments = Vec::with_capacity(self.disk.piece_count(offset, len));
        let mut tally = Tally::default();
        let is_recorded = self.disk.records.trace.load().is_some();
        let begin = is_recorded.then(Instant::now);
        let mut tiers = Vec::new();
        for piece in self.disk.pieces(offset, len) {
            let (segment, tier) = match self.at_hand(&piece) {
                AtHand::Zero => (Segment::Zeros(piece.len), Tier::Zero),
                AtHand::Memory(chunk, tier) => (segment(chunk, &piece), tier),
                AtHand::Disk(..) | AtHand::Missing => return Ok(TryRead::WouldWait),
            };
            push(&mut segments, segment);
            tally.add(tier, piece.len);
            if is_recorded {
                tiers.push((piece, tier));
            }
        }
        tally.count(&self.sources, len);
        if let Some(begin) = begin {
            self.note_hits(offset, len, begin, &tiers);
        }
        self.follow_hit(offset, len);
        Ok(TryRead::Ready(segments))
    }

    fn read(&self, offset: u64, len: usize) -> ReadFuture {
        let view = self.again(self.is_recorded);
        Box::pin(async move { view.read_waiting(offset, len).await })
    }

    fn start_read(&self, offset: u64, len: usize, done: ReadDone) {
        let begin = Instant::now();
        let len = self.disk.clip(offset, len);
        let Some((piece, digest, part)) = self.only_on_disk(offset, len) else { return done(None) };
        let view = self.again(self.is_recorded);
        let start = piece.start - part.start;
        let then = move |content: Option<Bytes>| {
            let Some(content) = content else { return done(None) };
            let segment = Segment::Bytes(content.slice(start..start + piece.len));
            view.note_from_disk(offset, len, piece, begin);
            done(Some(vec![segment]));
        };
        self.sources.chunks.reader.start_then(&digest, part, Box::new(then));
    }

    fn opened(&self) {
        note_opened(&self.disk.records, &self.sources);
        let (disk, shape) = (self.disk.clone(), &self.disk.shape);
        read_ahead::begin(&self.sources, &self.disk.records, shape, async { Some(disk) });
    }

    fn closed(&self) {
        self.disk.records.read_aheads.closed();
    }

    fn unrecorded(&self) -> Option<Arc<dyn BlockView>> {
        Some(Arc::new(self.again(false)))
    }

    fn boots(&self) -> Option<Arc<DiskBoots>> {
        Some(self.disk.records.disk_boots.clone())
    }

    fn next_extent(&self, offset: u64, kind: ExtentKind) -> Option<u64> {
        self.disk.next_extent(offset, kind)
    }

    fn prepare_extent(&self, offset: u64, kind: ExtentKind) -> Option<PrepareFuture> {
        if self.disk.knows_extent(offset, kind) {
            return None;
        }
        let (disk, sources) = (self.disk.clone(), self.sources.clone());
        Some(Box::pin(async move {
            let deadline = sources.clock.now() + sources.config.read_deadline;
            let look_up = move |disk: &Disk| disk.bring_extent(offset, kind);
            sources.look_up(&disk, Priority::Guest, deadline, look_up).await
        }))
    }

    fn cached_bytes(&self) -> u64 {
        let (bytes, is_due) = self.disk.cached_bytes();
        if is_due {
            let (disk, store) = (self.disk.clone(), self.sources.chunks.store.clone());
            self.sources.runtime.spawn_blocking(move || disk.count_cached_bytes(&*store));
        }
        bytes
    }
}
