//! Bytes of orders of chunks of one disk: the chunks that boots read, in the order of first touch.
//!
//! `doc/source/reference/formats/rank-list.rst` describes them. The length follows what is in the orders,
//! never the size of the disk.

use std::collections::HashSet;

use crate::limits;

const MAGIC: &[u8; 8] = b"ACSTRANK";
/// Version of the form.
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 16;
/// Length of the number of chunks before each order, bytes.
const COUNT_BYTES: usize = 4;
/// Longest number of a chunk, bytes.
const VARINT_BYTES_MAX: usize = 5;

/// Longest form of any orders, bytes.
pub(crate) fn len_max() -> u64 {
    let order = COUNT_BYTES + limits::BOOT_CHUNKS_MAX * VARINT_BYTES_MAX;
    (HEADER_BYTES + limits::BOOT_KINDS_MAX * order) as u64
}

/// Returns the form of some orders, each of different chunks, within the limits of their number and
/// length.
pub(crate) fn encode(orders: &[Vec<u32>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&(orders.len() as u32).to_le_bytes());
    for order in orders {
        bytes.extend_from_slice(&(order.len() as u32).to_le_bytes());
        let mut expected = 0;
        for chunk in order {
            let chunk = i64::from(*chunk);
            push_varint(&mut bytes, zigzag(chunk - expected));
            expected = chunk + 1;
        }
    }
    bytes
}

/// Returns the orders that bytes are, of chunks of a disk of so many.
///
/// # Errors
/// Text for people, when the bytes are no such orders.
pub(crate) fn decode(chunk_count: u64, bytes: &[u8]) -> Result<Vec<Vec<u32>>, String> {
    let refused = |what: &str| format!("{what}; no orders of a disk of {chunk_count} chunks");
    let Some((header, mut rest)) = bytes.split_at_checked(HEADER_BYTES) else {
        return Err(refused(&format!("it has {} bytes", bytes.len())));
    };
    if header[..8] != *MAGIC {
        return Err(refused("it does not begin as they do"));
    }
    let version = number(&header[8..12]);
    if version != VERSION {
        return Err(refused(&format!("it has version {version}, this release reads {VERSION}")));
    }
    let count = number(&header[12..16]) as usize;
    if count > limits::BOOT_KINDS_MAX {
        return Err(refused(&format!("it has {count} orders")));
    }
    let mut orders = Vec::with_capacity(count);
    for _ in 0..count {
        orders.push(take_order(chunk_count, &mut rest).map_err(|what| refused(&what))?);
    }
    if !rest.is_empty() {
        return Err(refused(&format!("{} bytes are left over", rest.len())));
    }
    Ok(orders)
}

fn take_order(chunk_count: u64, rest: &mut &[u8]) -> Result<Vec<u32>, String> {
    let Some((count, left)) = rest.split_at_checked(COUNT_BYTES) else {
        return Err("it ends within an order".to_owned());
    };
    *rest = left;
    let count = number(count) as usize;
    // A chunk takes a byte at least: no more is allocated than there is.
    if count == 0 || count > limits::BOOT_CHUNKS_MAX || count > rest.len() {
        return Err(format!("an order has {count} chunks in {} bytes", rest.len()));
    }
    let mut order = Vec::with_capacity(count);
    let mut seen = HashSet::with_capacity(count);
    let mut expected = 0;
    for _ in 0..count {
        let delta = take_varint(rest).ok_or("a number of a chunk is damaged")?;
        let chunk = expected + unzigzag(delta);
        let index = u32::try_from(chunk).ok().filter(|index| u64::from(*index) < chunk_count);
        let index = index.ok_or_else(|| format!("it has chunk {chunk}"))?;
        if !seen.insert(index) {
            return Err(format!("an order has chunk {index} twice"));
        }
        order.push(index);
        expected = chunk + 1;
    }
    Ok(order)
}

fn zigzag(delta: i64) -> u32 {
    // Chunks are below 2^30, so that any distance fits.
    (delta << 1 ^ delta >> 63) as u32
}

fn unzigzag(value: u32) -> i64 {
    let value = i64::from(value);
    value >> 1 ^ -(value & 1)
}

fn push_varint(bytes: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Takes a number in its shortest form; `None` for any other.
fn take_varint(rest: &mut &[u8]) -> Option<u32> {
    let mut value = 0_u64;
    for at in 0..VARINT_BYTES_MAX {
        let byte = *rest.get(at)?;
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            *rest = &rest[at + 1..];
            let is_shortest = at == 0 || byte != 0;
            return u32::try_from(value).ok().filter(|_| is_shortest);
        }
    }
    None
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LARGE: u64 = 1 << 30;

    #[test]
    fn test_form_is_the_golden_one() {
        let orders = vec![
            vec![0, 1, 2, 900, 901, 5, (LARGE - 1) as u32, 3],
            vec![(LARGE - 1) as u32, 0, 64, 63],
        ];
        let golden = include_bytes!("../../../../tests/golden/rank-list-v1.bin");
        assert_eq!(encode(&orders), golden);
        assert_eq!(decode(LARGE, golden).unwrap(), orders);
        assert_eq!(VERSION, 1);
    }

    #[test]
    fn test_neighbours_take_a_byte_each() {
        let order: Vec<u32> = (1000..1815).collect();
        assert_eq!(encode(&[order]).len(), HEADER_BYTES + COUNT_BYTES + 815 + 1);
    }

    #[test]
    fn test_what_is_no_order_of_the_disk_is_refused() {
        let good = encode(&[vec![3, 4, 70]]);
        assert_eq!(decode(71, &good).unwrap(), [[3, 4, 70]]);
        let edited = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            bytes
        };
        for (bad, reason) in [
            (vec![], "0 bytes"),
            (edited(0, b'x'), "begin"),
            (edited(8, 2), "version 2"),
            (edited(12, 4), "4 orders"),
            (edited(12, 2), "within an order"),
            (edited(12, 0), "left over"),
            (edited(16, 0), "0 chunks"),
            (edited(16, 200), "200 chunks in 4 bytes"),
            (edited(20, 1), "chunk -1"),
            (edited(21, 1), "twice"),
            (edited(23, 0x80), "damaged"),
            (edited(23, 0), "damaged"),
            ([&good[..], &[0]].concat(), "left over"),
            (good[..good.len() - 1].to_vec(), "damaged"),
        ] {
            let found = decode(71, &bad).unwrap_err();
            assert!(found.contains(reason), "{found}, not {reason}");
        }
        assert!(decode(70, &good).unwrap_err().contains("chunk 70"));
    }

    #[test]
    fn test_length_is_bounded_before_anything_is_allocated() {
        let most = vec![(0..limits::BOOT_CHUNKS_MAX as u32).collect::<Vec<_>>(); 3];
        let bytes = encode(&most);
        assert!(bytes.len() as u64 <= len_max());
        assert_eq!(decode(LARGE, &bytes).unwrap(), most);
        let mut more = bytes[..HEADER_BYTES].to_vec();
        more.extend_from_slice(&(limits::BOOT_CHUNKS_MAX as u32 + 1).to_le_bytes());
        more.resize(1 << 20, 0);
        assert!(decode(LARGE, &more).unwrap_err().contains("16385 chunks"));
    }

    fn orders() -> impl Strategy<Value = (u64, Vec<Vec<u32>>)> {
        let counts = prop_oneof![1_u64..300, LARGE - 9..=LARGE];
        counts.prop_flat_map(|count| {
            let order = prop::collection::hash_set(0..count as u32, 1..40);
            let order = order.prop_map(|order| order.into_iter().collect());
            (Just(count), prop::collection::vec(order, 0..=limits::BOOT_KINDS_MAX))
        })
    }

    proptest! {
        #[test]
        fn test_form_says_what_the_plain_orders_do((count, orders) in orders()) {
            prop_assert_eq!(decode(count, &encode(&orders)), Ok(orders));
        }

        #[test]
        fn test_damage_is_refused_or_is_other_orders_of_the_disk(
            (count, orders) in orders(), damage in prop::collection::vec((any::<u16>(), any::<u8>()), 1..6),
            cut in 0_usize..6,
        ) {
            let mut bytes = encode(&orders);
            bytes.truncate(bytes.len().saturating_sub(cut));
            for (at, byte) in damage {
                let at = usize::from(at) % bytes.len().max(1);
                bytes.iter_mut().skip(at).take(1).for_each(|it| *it = byte);
            }
            if let Ok(found) = decode(count, &bytes) {
                prop_assert!(found.iter().flatten().all(|chunk| u64::from(*chunk) < count));
                prop_assert_eq!(encode(&found), bytes);
            }
        }

        #[test]
        fn test_any_bytes_are_orders_or_refused(count in 1_u64..500, bytes: Vec<u8>) {
            let all = [&encode(&[])[..12], &bytes].concat();
            if let Ok(found) = decode(count, &all) {
                prop_assert_eq!(encode(&found), all);
            }
        }
    }
}
