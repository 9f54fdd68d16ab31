//! The manifest under the overlay: reads of gaps, zeros past its end.

use std::sync::Arc;

use acstor_readpath::{
    BlockView, DiskBoots, ExtentKind, PrepareFuture, ReadError, Reader, Segment as BaseSegment,
    limits,
};

use crate::segments::record::SECTOR;
use crate::{
    DeviceError, DeviceErrorKind, DeviceExtent, DeviceFuture, DeviceUse, OverlayError, Piece,
};

/// The manifest under the overlay.
pub(crate) struct Base(pub Arc<dyn BlockView>);

/// The use of the base by one client of the volume: its boot is learnt, and read ahead.
///
/// All of its reads count, also of what was written over the base: another volume over it has not.
pub(crate) struct BaseUse {
    view: Arc<dyn BlockView>,
    boots: Option<Arc<DiskBoots>>,
    reader: Reader,
}

impl BaseUse {
    /// Notes that a client opened the volume.
    pub(crate) fn begin(base: &Base, client: u64) -> BaseUse {
        let (view, reader) = (Arc::clone(&base.0), Reader::Client(client));
        let boots = view.boots();
        view.opened();
        if let Some(boots) = &boots {
            boots.opened(true);
        }
        BaseUse { view, boots, reader }
    }
}

impl DeviceUse for BaseUse {
    fn arrived(&self, offset: u64, len: usize) {
        if let Some(boots) = &self.boots {
            boots.arrived(self.reader, offset, len);
        }
    }
}

impl Drop for BaseUse {
    fn drop(&mut self) {
        self.view.closed();
        if let Some(boots) = &self.boots {
            boots.closed(true);
        }
    }
}

/// Reason for which the base did not answer.
pub(crate) enum BaseError {
    /// No source answered in time: another attempt may find one.
    Late(DeviceError),
    Failed(DeviceError),
}

impl BaseError {
    pub(crate) fn into_device(self) -> DeviceError {
        match self {
            BaseError::Late(error) | BaseError::Failed(error) => error,
        }
    }
}

impl From<DeviceError> for BaseError {
    fn from(error: DeviceError) -> BaseError {
        BaseError::Failed(error)
    }
}

/// Returns the part of a gap that the base covers, in steps that it answers.
fn base_steps(
    base: Option<&Base>,
    offset: u64,
    len: usize,
) -> impl Iterator<Item = (u64, usize)> + use<> {
    let covered = covered(base, offset, len);
    let step = limits::READ_LEN_MAX;
    (0..covered.div_ceil(step)).map(move |number| {
        let at = number * step;
        (offset + at as u64, step.min(covered - at))
    })
}

/// Bytes of a gap that are inside the base.
fn covered(base: Option<&Base>, offset: u64, len: usize) -> usize {
    let size = base.map_or(0, |base| base.0.size_bytes());
    size.saturating_sub(offset).min(len as u64) as usize
}

/// Appends the zeros of a gap that is past the base.
fn pad(pieces: &mut Vec<Piece>, base: Option<&Base>, offset: u64, len: usize) {
    let rest = len - covered(base, offset, len);
    if rest > 0 {
        pieces.push(Piece::Base(BaseSegment::Zeros(rest)));
    }
}

/// Appends a gap's content when it is at hand.
pub(crate) fn try_base(
    base: Option<&Base>,
    offset: u64,
    len: usize,
    pieces: &mut Vec<Piece>,
) -> Result<bool, DeviceError> {
    for (offset, len) in base_steps(base, offset, len) {
        let Some(base) = base else { continue };
        match base.0.try_read(offset, len).map_err(read_error)? {
            acstor_readpath::TryRead::Ready(segments) => {
                pieces.extend(segments.into_iter().map(Piece::Base));
            }
            acstor_readpath::TryRead::WouldWait => return Ok(false),
        }
    }
    pad(pieces, base, offset, len);
    Ok(true)
}

/// Returns a gap's content from wherever the base has it.
pub(crate) async fn read_base(
    base: Option<&Base>,
    offset: u64,
    len: usize,
) -> Result<Vec<Piece>, BaseError> {
    let mut pieces = Vec::new();
    for (offset, len) in base_steps(base, offset, len) {
        let Some(base) = base else { continue };
        let segments = base.0.read(offset, len).await.map_err(|error| match error {
            ReadError::Deadline(_) => BaseError::Late(read_error(error)),
            _ => BaseError::Failed(read_error(error)),
        })?;
        pieces.extend(segments.into_iter().map(Piece::Base));
    }
    pad(&mut pieces, base, offset, len);
    Ok(pieces)
}

/// Copies the pieces of a read to memory; blocks while the disk is read.
pub(crate) fn copy_pieces(
    pieces: Result<Vec<Piece>, DeviceError>,
    len: usize,
) -> Result<Vec<u8>, OverlayError> {
    let mut bytes = vec![0; len];
    let mut at = 0;
    for piece in pieces.map_err(|error| OverlayError::Unavailable(error.message))? {
        let target = &mut bytes[at..at + piece.len()];
        at += piece.len();
        let copied = match piece {
            Piece::Log(piece) => piece.read_at(0, target),
            Piece::Base(segment) => segment.read_to(target),
        };
        copied.map_err(|error| OverlayError::io("read the disk", error))?;
    }
    Ok(bytes)
}

/// Returns the extent of the base that begins at `offset`, up to `end`.
pub(crate) fn base_extent(base: Option<&Base>, offset: u64, end: u64) -> DeviceExtent {
    let hole = |end: u64| DeviceExtent {
        len: end - offset,
        is_hole: true,
        is_zero: true,
        is_dirty: false,
    };
    // Whole sectors only: the last one of a base may be partly past its end.
    let round = |at: u64| at.next_multiple_of(SECTOR).min(end);
    let Some(base) = base.filter(|base| base.0.size_bytes() > offset) else { return hole(end) };
    match base.0.next_extent(offset, ExtentKind::Data) {
        None => hole(end),
        Some(data) if data > offset => hole((data / SECTOR * SECTOR).clamp(offset + SECTOR, end)),
        Some(_) => {
            let data_end = base.0.next_extent(offset, ExtentKind::Hole).unwrap_or(end);
            let data_end = round(data_end).max(offset + SECTOR);
            DeviceExtent {
                len: data_end.min(end) - offset,
                is_hole: false,
                is_zero: false,
                is_dirty: false,
            }
        }
    }
}

/// Brings what tells the data of the base from its holes; as [`crate::BlockDevice::prepare_extents`].
pub(crate) fn prepare_base_extents(
    base: Arc<Base>,
    offset: u64,
    end: u64,
    max: usize,
) -> Option<DeviceFuture<()>> {
    let end = end.min(base.0.size_bytes());
    let left = max.saturating_mul(2);
    let mut walk = ExtentWalk { base, at: offset, kind: ExtentKind::Data, end, left };
    let mut unknown = Some(walk.next_unknown()?);
    Some(Box::pin(async move {
        while let Some(preparing) = unknown {
            preparing.await.map_err(read_error)?;
            walk.step();
            unknown = walk.next_unknown();
        }
        Ok(())
    }))
}

/// A walk from data to hole to data.
struct ExtentWalk {
    base: Arc<Base>,
    at: u64,
    kind: ExtentKind,
    end: u64,
    /// Steps.
    left: usize,
}

impl ExtentWalk {
    /// Goes on to where an answer is not here; `None`: all are.
    fn next_unknown(&mut self) -> Option<PrepareFuture> {
        while self.at < self.end && self.left > 0 {
            let preparing = self.base.0.prepare_extent(self.at, self.kind);
            if preparing.is_some() {
                return preparing;
            }
            self.step();
        }
        None
    }

    fn step(&mut self) {
        self.at = self.base.0.next_extent(self.at, self.kind).unwrap_or(self.end);
        self.left -= 1;
        self.kind = match self.kind {
            ExtentKind::Data => ExtentKind::Hole,
            ExtentKind::Hole => ExtentKind::Data,
        };
    }
}

fn read_error(error: ReadError) -> DeviceError {
    DeviceError::new(DeviceErrorKind::Io, error.to_string())
}
