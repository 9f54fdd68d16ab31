//! Reads of objects: head, then bytes.

use std::sync::Arc;

use bytes::BytesMut;

use crate::binding::Errno;
use crate::client::Client;
use crate::destination::Destination;
use crate::known_heads::{KnownHead, KnownHeads};
use crate::layout::{Class, Piece, Role, classes_of, namespace_of, pieces_of};
use crate::settings::c_string;
use crate::{HEAD_LEN, Head, HeadKind, RadosError};

/// Bytes up to which a first read brings the head along with the content.
const SMALL_READ_BYTES: u64 = 128 << 10;
/// Stripes that one read asks for at once. With all threads of the origin that is less than librados has
/// under way before it makes who asks wait, whatever the deadline (1,024 operations, 100 MiB): a run has 4 MiB.
const STRIPES_AT_ONCE: usize = 8;

/// Objects of one repository.
#[derive(Debug)]
pub(crate) struct ObjectReader {
    client: Arc<Client>,
    repository: String,
    heads: KnownHeads,
}

/// Outcome of a read of content.
enum Found {
    /// So many bytes, fewer than were asked for where the object ends.
    Bytes(usize),
    /// Its RADOS object, or one of them, is not there (any more).
    Absent,
    /// A stripe ends too early.
    CutOff(u64),
}

impl ObjectReader {
    /// Reads through a client, which may have others, in a repository.
    pub(crate) fn new(client: Arc<Client>, repository: &str) -> ObjectReader {
        ObjectReader { client, repository: repository.to_owned(), heads: KnownHeads::default() }
    }

    /// Fills `into` with the bytes of an object from `offset` on, as far as that reaches; returns their
    /// number.
    ///
    /// # Errors
    /// [`RadosError`]; the buffers then have their lengths, and any content.
    pub(crate) fn read(
        &self,
        key: &str,
        offset: u64,
        into: &mut Destination<'_>,
    ) -> Result<usize, RadosError> {
        if let Some(known) = self.heads.get(key) {
            match self.read_content(key, &known, offset, into)? {
                Found::Bytes(count) if count == into.len() => return Ok(count),
                // Somebody may have removed the object, and another one have stored it again.
                _ => self.heads.forget(key),
            }
        }
        for class in classes_of(key) {
            match self.read_in(*class, key, offset, into) {
                Err(RadosError::NotFound { .. }) => {}
                outcome => return outcome,
            }
        }
        Err(not_found(key))
    }

    /// Reads an object of one class, of which nothing is known.
    fn read_in(
        &self,
        class: Class,
        key: &str,
        offset: u64,
        into: &mut Destination<'_>,
    ) -> Result<usize, RadosError> {
        let wanted = offset.saturating_add((HEAD_LEN + into.len()) as u64);
        let first = if wanted <= SMALL_READ_BYTES { wanted as usize } else { HEAD_LEN };
        let stored = self.read_stored(class, key, first)?;
        let head = Head::parse(&stored, key)?;
        if !head.is_there() {
            return Err(not_found(key));
        }
        let known = KnownHead { class, head };
        let found = match content_in(&stored, &head, offset, into.len()) {
            Some(content) => {
                into.copy(0, content);
                Found::Bytes(content.len())
            }
            None => self.read_content(key, &known, offset, into)?,
        };
        match found {
            Found::Bytes(count) => {
                self.heads.remember(key, known);
                Ok(count)
            }
            Found::CutOff(stripe) => Err(RadosError::CutOff { key: key.to_owned(), stripe }),
            Found::Absent => Err(self.explain_absence(class, key)),
        }
    }

    /// The reason for which bytes are absent whose head was there a moment ago.
    fn explain_absence(&self, class: Class, key: &str) -> RadosError {
        let stored = self.read_stored(class, key, HEAD_LEN);
        match stored.and_then(|stored| Head::parse(&stored, key)) {
            Ok(head) if head.is_there() => {
                RadosError::Damaged { key: key.to_owned(), cause: "a stripe is missing" }
            }
            Ok(_) => not_found(key),
            Err(error) => error,
        }
    }

    /// Reads the first bytes, at most `len`, of an object's RADOS object of heads.
    ///
    /// # Errors
    /// [`RadosError::NotFound`] where there is none, any other where that is not known.
    fn read_stored(&self, class: Class, key: &str, len: usize) -> Result<BytesMut, RadosError> {
        let namespace = namespace_of(&self.repository, Role::Heads, class, key);
        let namespace = self.client.namespace(Role::Heads, &namespace)?;
        let name = c_string(key, "name of an object")?;
        let (outcome, mut stored) = namespace.start_read(&name, 0, BytesMut::zeroed(len)).wait();
        match outcome {
            Ok(count) => {
                stored.truncate(count);
                Ok(stored)
            }
            Err(Errno(libc::ENOENT)) => {
                self.client.check_pools()?;
                Err(not_found(key))
            }
            Err(error) => Err(self.client.error(error, format!("reading {key}"))),
        }
    }

    /// Reads bytes of an object whose head is known.
    ///
    /// # Errors
    /// [`RadosError`], where it is not known whether the bytes are there.
    fn read_content(
        &self,
        key: &str,
        known: &KnownHead,
        offset: u64,
        into: &mut Destination<'_>,
    ) -> Result<Found, RadosError> {
        let mut done = 0;
        for group in pieces_of(&known.head, offset, into.len()).chunks(STRIPES_AT_ONCE) {
            let found = self.read_pieces(key, known, group, done, into);
            if !matches!(found, Ok(Found::Bytes(_))) {
                into.restore();
            }
            match found? {
                Found::Bytes(count) => done += count,
                Found::Absent => {
                    self.client.check_pools()?;
                    return Ok(Found::Absent);
                }
                cut_off @ Found::CutOff(_) => return Ok(cut_off),
            }
        }
        Ok(Found::Bytes(done))
    }

    /// Reads pieces, all at once, to the place from `start` on. Those that are not waited for any more, since
    /// one has failed, are given up.
    fn read_pieces(
        &self,
        key: &str,
        known: &KnownHead,
        pieces: &[Piece],
        start: usize,
        into: &mut Destination<'_>,
    ) -> Result<Found, RadosError> {
        let role = match known.head.kind {
            HeadKind::Whole => Role::Heads,
            _ => Role::Stripes,
        };
        let namespace = namespace_of(&self.repository, role, known.class, key);
        let namespace = self.client.namespace(role, &namespace)?;
        let mut under_way = Vec::with_capacity(pieces.len());
        let mut end = start;
        for piece in pieces {
            let range = end..end + piece.len;
            let name = c_string(&piece.name(key, &known.head), "name of an object")?;
            let read = namespace.start_read(&name, piece.offset, into.lend(&range));
            end = range.end;
            under_way.push((piece, range, read));
        }
        let (mut count, mut is_absent, mut cut_off) = (0, false, None);
        for (piece, range, read) in under_way {
            let (outcome, memory) = read.wait();
            into.take_back(&range, memory);
            match (outcome, piece.stripe) {
                (Ok(len), Some(stripe)) if len < piece.len => cut_off = cut_off.or(Some(stripe)),
                (Ok(len), _) => count += len,
                (Err(Errno(libc::ENOENT)), _) => is_absent = true,
                (Err(error), _) => {
                    return Err(self.client.error(error, format!("reading {key}")));
                }
            }
        }
        Ok(match cut_off {
            _ if is_absent => Found::Absent,
            Some(stripe) => Found::CutOff(stripe),
            None => Found::Bytes(count),
        })
    }
}

/// The bytes of a whole object's range, where they were read along with its head.
fn content_in<'a>(stored: &'a [u8], head: &Head, offset: u64, len: usize) -> Option<&'a [u8]> {
    if head.kind != HeadKind::Whole {
        return None;
    }
    let len = head.size.saturating_sub(offset).min(len as u64) as usize;
    let start = usize::try_from(offset).ok()?.checked_add(HEAD_LEN)?;
    if len == 0 { Some(&[]) } else { stored.get(start..start.checked_add(len)?) }
}

fn not_found(key: &str) -> RadosError {
    RadosError::NotFound { key: key.to_owned() }
}

#[cfg(test)]
mod tests;
