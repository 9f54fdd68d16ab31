//! Frames on the socket between who looks into a disk and the process that reads it.
//!
//! A frame is a type (1 byte), the length of what follows (4 bytes, little-endian), and that. The pages of the
//! documentation have the protocol, version [`PROTOCOL_VERSION`].

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::rc::Rc;

use crate::disk::{Disk, fits};

/// Version of the protocol; both ends are of one release, so it is compared, not negotiated.
pub const PROTOCOL_VERSION: u32 = 1;

/// Bytes of a frame that are believed.
pub(crate) const FRAME_MAX: usize = 1 << 20;

/// Types of frames.
pub(crate) mod kind {
    /// From here, first: version of the protocol, size of the disk, JSON.
    pub const HELLO: u8 = b'H';
    /// To here: what is asked for, JSON.
    pub const QUESTION: u8 = b'Q';
    /// From here: bytes of the disk are wanted; offset (8 bytes) and length (4).
    pub const WANTED: u8 = b'R';
    /// To here: those bytes; who has none closes the socket.
    pub const DATA: u8 = b'D';
    /// From here: a part of the answer, JSON.
    pub const ITEM: u8 = b'J';
    /// From here: a part of the answer, bytes.
    pub const BYTES: u8 = b'B';
    /// From here: the answer is whole.
    pub const END: u8 = b'.';
    /// From here: the answer ends with an error, JSON.
    pub const ERROR: u8 = b'E';
}

/// The socket, as frames.
pub(crate) struct Channel<S> {
    stream: S,
}

impl<S: Read + Write> Channel<S> {
    pub(crate) const fn new(stream: S) -> Self {
        Self { stream }
    }

    pub(crate) fn send(&mut self, kind: u8, content: &[u8]) -> io::Result<()> {
        let len = u32::try_from(content.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut head = [kind, 0, 0, 0, 0];
        head[1..].copy_from_slice(&len.to_le_bytes());
        self.stream.write_all(&head)?;
        self.stream.write_all(content)
    }

    /// Returns the next frame; None where the other end has closed between two.
    pub(crate) fn receive(&mut self) -> io::Result<Option<(u8, Vec<u8>)>> {
        let mut head = [0; 5];
        let first = loop {
            match self.stream.read(&mut head[..1]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        if first == 0 {
            return Ok(None);
        }
        self.stream.read_exact(&mut head[1..])?;
        let len = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if len > FRAME_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("a frame of {len} bytes"),
            ));
        }
        let mut content = vec![0; len];
        self.stream.read_exact(&mut content)?;
        Ok(Some((head[0], content)))
    }

    /// Asks for bytes of the disk.
    fn fetch(&mut self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut wanted = [0; 12];
        wanted[..8].copy_from_slice(&offset.to_le_bytes());
        let len = u32::try_from(out.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        wanted[8..].copy_from_slice(&len.to_le_bytes());
        self.send(kind::WANTED, &wanted)?;
        match self.receive()? {
            Some((kind::DATA, content)) if content.len() == out.len() => {
                out.copy_from_slice(&content);
                Ok(())
            }
            Some((kind, content)) => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("a frame {kind} of {} bytes came for {len} of the disk", content.len()),
            )),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// A disk whose bytes are asked for at the other end of the socket.
pub struct RemoteDisk<S> {
    channel: Rc<RefCell<Channel<S>>>,
    size_bytes: u64,
}

impl<S: Read + Write> RemoteDisk<S> {
    pub(crate) const fn new(channel: Rc<RefCell<Channel<S>>>, size_bytes: u64) -> Self {
        Self { channel, size_bytes }
    }
}

impl<S: Read + Write> Disk for RemoteDisk<S> {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if !fits(offset, out.len(), self.size_bytes) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut done = 0;
        for part in out.chunks_mut(FRAME_MAX) {
            self.channel.borrow_mut().fetch(offset + done, part)?;
            done += part.len() as u64;
        }
        Ok(())
    }
}
