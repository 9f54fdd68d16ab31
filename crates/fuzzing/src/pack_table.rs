//! Packs of version 2: header and table, also with the checksum and the name that damaged ones would
//! need to be believed.

use acstor_pack::{PackHeader, PackTable, is_possible_len, plan_runs};
use acstor_types::{PACK_DATA_OFFSET, PackId, STORED_CHUNK_LEN};
use bytes::Bytes;

/// Most bytes of a planned run.
const RUN_BYTES_MAX: u64 = 1 << 20;

fn use_every_field(header: PackHeader, id: &PackId, records: &[u8]) {
    let Ok(table) = PackTable::parse(header, id, Bytes::copy_from_slice(records)) else { return };
    assert_eq!(table.as_bytes(), records);
    let chunks: Vec<_> = table.chunks().collect();
    assert_eq!(chunks.len(), table.len() as usize);
    assert_eq!(table.get(table.len()), None);
    let mut end = PACK_DATA_OFFSET;
    for (chunk, record) in chunks.iter().zip(records.chunks(STORED_CHUNK_LEN)) {
        assert_eq!(chunk.to_bytes(), record);
        assert_eq!(u64::from(chunk.offset), end);
        let plain_len = header.chunk_size.bytes();
        assert!(is_possible_len(chunk.codec, chunk.stored_len as usize, plain_len));
        end += u64::from(chunk.stored_len);
    }
    assert!(end <= u64::from(header.table_offset));
    let planned: usize = plan_runs(&chunks, RUN_BYTES_MAX).iter().map(|run| run.chunks.len()).sum();
    assert_eq!(planned, chunks.len());
}

/// The table behind the header: at its offset, or, so that short inputs have one, right behind it.
fn records<'a>(bytes: &'a [u8], header: &PackHeader) -> Option<&'a [u8]> {
    let len = usize::try_from(header.table_len()).ok()?;
    let from = |offset: usize| bytes.get(offset..)?.get(..len);
    from(header.table_offset as usize).or_else(|| from(PackHeader::LEN))
}

fn use_pack(bytes: &[u8]) {
    let Ok(header) = PackHeader::parse(bytes) else { return };
    assert_eq!(PackHeader::parse(&header.encode()), Ok(header));
    assert!(header.size_bytes() > u64::from(header.table_offset));
    if let Some(records) = records(bytes, &header) {
        use_every_field(header, &header.id(records), records);
    }
}

/// Uses one input; see the module.
///
/// # Panics
///
/// When a promise of the module is broken.
pub fn run(bytes: &[u8]) {
    use_pack(bytes);
    if bytes.len() >= PackHeader::LEN {
        let mut repaired = bytes.to_vec();
        let crc = crc32fast::hash(&repaired[..60]);
        repaired[60..64].copy_from_slice(&crc.to_le_bytes());
        use_pack(&repaired);
        // Without what lies between header and table.
        let padding = repaired.len().min(PACK_DATA_OFFSET as usize);
        repaired[PackHeader::LEN..padding].fill(0);
        use_pack(&repaired);
    }
}
