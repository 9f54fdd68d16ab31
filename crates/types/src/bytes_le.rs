//! Little-endian fields of a byte slice whose length the caller has checked.

/// The unsigned 32-bit number at `offset`.
///
/// # Panics
/// When the slice ends before the field does.
pub fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[offset..offset + 4]);
    u32::from_le_bytes(field)
}

/// The unsigned 64-bit number at `offset`.
///
/// # Panics
/// When the slice ends before the field does.
pub fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[offset..offset + 8]);
    u64::from_le_bytes(field)
}

/// The `N` bytes at `offset`.
///
/// # Panics
/// When the slice ends before the field does.
pub fn array_at<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[offset..offset + N]);
    field
}
