//! Disks that are looked into.

use std::io;
use std::rc::Rc;

/// Bytes of a disk, which never change.
pub trait Disk {
    /// Length, bytes.
    fn size_bytes(&self) -> u64;

    /// Fills `out` with the bytes from `offset` on.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::UnexpectedEof`] where they are not all on the disk; what reading them comes to.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;
}

/// Returns whether `len` bytes from `offset` on are all among `size`.
pub(crate) fn fits(offset: u64, len: usize, size: u64) -> bool {
    offset.checked_add(len as u64).is_some_and(|end| end <= size)
}

impl Disk for Vec<u8> {
    fn size_bytes(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if !fits(offset, out.len(), self.size_bytes()) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // In memory, so every offset is a usize.
        let start = offset as usize;
        out.copy_from_slice(&self[start..start + out.len()]);
        Ok(())
    }
}

/// A part of a disk, as a disk of its own.
#[derive(Clone)]
pub struct Part {
    disk: Rc<dyn Disk>,
    start: u64,
    size_bytes: u64,
}

impl Part {
    /// Returns the part from `start` on, as much of it as is on the disk: tables of partitions may lie.
    #[must_use]
    pub fn new(disk: Rc<dyn Disk>, start: u64, size_bytes: u64) -> Self {
        let behind = disk.size_bytes().saturating_sub(start);
        Self { disk, start, size_bytes: size_bytes.min(behind) }
    }

    /// Returns all of a disk.
    #[must_use]
    pub fn whole(disk: Rc<dyn Disk>) -> Self {
        let size_bytes = disk.size_bytes();
        Self { disk, start: 0, size_bytes }
    }
}

impl Disk for Part {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if !fits(offset, out.len(), self.size_bytes) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.disk.read_at(self.start + offset, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_part_has_no_bytes_of_its_neighbours() {
        let disk: Rc<dyn Disk> = Rc::new((0..100).collect::<Vec<u8>>());
        let part = Part::new(Rc::clone(&disk), 10, 20);
        let mut out = [0; 2];
        part.read_at(18, &mut out).unwrap();
        assert_eq!(out, [28, 29]);
        assert!(part.read_at(19, &mut out).is_err());
        assert!(part.read_at(u64::MAX, &mut out).is_err());
        assert_eq!(Part::new(Rc::clone(&disk), 90, 20).size_bytes(), 10, "what is on the disk");
        assert_eq!(Part::new(disk, 200, 20).size_bytes(), 0);
    }
}
