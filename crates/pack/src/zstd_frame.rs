//! The outline of a zstd frame, read before a decoder sees it.
//!
//! RFC 8878 allows much that no pack contains: several frames, frames to skip, dictionaries,
//! windows of any size, unknown content sizes, checksums. What is left is one frame of one segment,
//! whose window is its content and whose blocks end where the stored bytes do.

const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Descriptor bit: the window is the content.
const SINGLE_SEGMENT: u8 = 0x20;
/// Descriptor bits of no frame of a pack: unused, reserved, checksum, dictionary.
const REFUSED: u8 = 0x1f;
/// Most bytes of a block, stored and plain (RFC 8878, 3.1.1.2.4).
const BLOCK_LEN_MAX: usize = 128 << 10;
const BLOCK_HEADER_LEN: usize = 3;

/// Refuse whatever is not one frame of `plain_len` bytes as [`crate::ChunkCompressor`] writes it.
///
/// # Errors
/// The reason.
pub(crate) fn check(frame: &[u8], plain_len: usize) -> Result<(), &'static str> {
    let (magic, rest) = frame.split_first_chunk::<4>().ok_or("it is too short")?;
    if *magic != MAGIC {
        return Err("it has another magic");
    }
    let (descriptor, rest) = rest.split_first().ok_or("it is too short")?;
    if descriptor & SINGLE_SEGMENT == 0 {
        return Err("it has a window of its own");
    }
    if descriptor & REFUSED != 0 {
        return Err("it has a checksum, a dictionary or bits that are reserved");
    }
    let (content_len, blocks) = content_len(*descriptor, rest).ok_or("it is too short")?;
    if content_len != plain_len as u64 {
        return Err("its content has another length");
    }
    check_blocks(blocks, BLOCK_LEN_MAX.min(plain_len))
}

/// The content's length, as the descriptor's upper two bits say, and what follows it.
fn content_len(descriptor: u8, bytes: &[u8]) -> Option<(u64, &[u8])> {
    let field_len = 1 << (descriptor >> 6);
    let (field, rest) = bytes.split_at_checked(field_len)?;
    let mut number = [0; 8];
    number[..field_len].copy_from_slice(field);
    // A field of two bytes counts from 256.
    let from = if field_len == 2 { 256 } else { 0 };
    Some((u64::from_le_bytes(number).checked_add(from)?, rest))
}

fn check_blocks(mut bytes: &[u8], block_len_max: usize) -> Result<(), &'static str> {
    loop {
        let (header, rest) =
            bytes.split_first_chunk::<BLOCK_HEADER_LEN>().ok_or("a block is missing")?;
        let header = u32::from_le_bytes([header[0], header[1], header[2], 0]);
        let (is_last, block_len) = (header & 1 == 1, (header >> 3) as usize);
        if block_len > block_len_max {
            return Err("a block is too long");
        }
        let stored_len = match (header >> 1) & 3 {
            0 | 2 => block_len,
            1 => 1,
            _ => return Err("a block is of a type that is reserved"),
        };
        bytes = rest.get(stored_len..).ok_or("a block is cut off")?;
        if is_last {
            return if bytes.is_empty() { Ok(()) } else { Err("something follows it") };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::check;

    /// A frame of one raw block.
    fn raw(content: &[u8]) -> Vec<u8> {
        let header = ((content.len() as u32) << 3) | 1;
        let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x60];
        frame.extend((content.len() as u16 - 256).to_le_bytes());
        frame.extend(&header.to_le_bytes()[..3]);
        frame.extend(content);
        frame
    }

    #[test]
    fn test_check_one_segment_is_accepted() {
        assert_eq!(check(&raw(&[7; 300]), 300), Ok(()));
        // Of the same block as run length, in all widths of the content's length.
        for (descriptor, field) in [
            (0x60, &44_u16.to_le_bytes()[..]),
            (0xa0, &300_u32.to_le_bytes()),
            (0xe0, &300_u64.to_le_bytes()),
        ] {
            let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, descriptor];
            frame.extend(field);
            frame.extend(&((300_u32 << 3) | 0b011).to_le_bytes()[..3]);
            frame.push(7);
            assert_eq!(check(&frame, 300), Ok(()), "{descriptor:#x}");
        }
    }

    #[test]
    fn test_check_other_lengths_are_refused() {
        for plain_len in [0, 44, 299, 301, 1 << 22] {
            assert_eq!(check(&raw(&[7; 300]), plain_len), Err("its content has another length"));
        }
    }

    #[test]
    fn test_check_every_bit_of_the_descriptor_counts() {
        for bit in 0..8 {
            let mut frame = raw(&[7; 300]);
            frame[4] ^= 1 << bit;
            assert!(check(&frame, 300).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn test_check_truncated_or_longer_is_refused() {
        let frame = raw(&[7; 300]);
        for len in 0..frame.len() {
            assert!(check(&frame[..len], 300).is_err(), "{len}");
        }
        let longer = [&frame[..], &[0]].concat();
        assert_eq!(check(&longer, 300), Err("something follows it"));
        let twice = [&frame[..], &frame[..]].concat();
        assert_eq!(check(&twice, 300), Err("something follows it"));
    }

    #[test]
    fn test_check_blocks_longer_than_the_content_are_refused() {
        let mut frame = raw(&[7; 300]);
        for len in [301_u32, 1 << 20] {
            frame[7..10].copy_from_slice(&((len << 3) | 0b011).to_le_bytes()[..3]);
            assert_eq!(check(&frame, 300), Err("a block is too long"));
        }
    }

    #[test]
    fn test_check_frames_to_skip_are_refused() {
        let mut frame = raw(&[7; 300]);
        frame[..4].copy_from_slice(&0x184d_2a50_u32.to_le_bytes());
        assert_eq!(check(&frame, 300), Err("it has another magic"));
    }
}
