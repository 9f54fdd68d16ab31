//! Pack headers and names.

use acstor_types::{Digest, PackHeader, PackId, PackSalt};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::buffer::Buffer;
use super::{Failure, chunk_size_of, digests_of, invalid};
use crate::errors;

pub(super) fn salt_of(bytes: &[u8]) -> Result<PackSalt, Failure> {
    bytes.try_into().map_err(|_| invalid("a salt is 16 bytes"))
}

/// Returns the first 4096 bytes of a pack.
#[pyfunction]
pub(crate) fn pack_header<'py>(
    py: Python<'py>,
    chunk_size: u32,
    chunk_count: u32,
    salt: &[u8],
) -> PyResult<Bound<'py, PyBytes>> {
    let header = PackHeader { chunk_size: chunk_size_of(chunk_size)?, chunk_count };
    let bytes = header.encode_salted(&salt_of(salt)?);
    PackHeader::parse(&bytes).map_err(|error| errors::raise(error.kind(), error))?;
    Ok(PyBytes::new(py, &bytes))
}

/// Returns (chunk size, chunk count, salt) of a pack's first 64 bytes or more.
#[pyfunction]
pub(crate) fn parse_pack_header<'py>(
    py: Python<'py>,
    header: &[u8],
) -> PyResult<(u32, u32, Bound<'py, PyBytes>)> {
    let raise = |error: acstor_types::PackError| errors::raise(error.kind(), error);
    let parsed = PackHeader::parse(header).map_err(raise)?;
    let salt = PackHeader::parse_salt(header).map_err(raise)?;
    Ok((parsed.chunk_size.as_u32(), parsed.chunk_count, PyBytes::new(py, &salt)))
}

/// Returns the id of the pack with these digests and this salt.
#[pyfunction]
pub(crate) fn pack_id<'py>(
    py: Python<'py>,
    digests: &Bound<'py, PyAny>,
    salt: &[u8],
) -> PyResult<Bound<'py, PyBytes>> {
    let digests = Buffer::readable(digests)?;
    digests_of(digests.bytes())?;
    let id: Digest = PackId::of_salted(digests.bytes(), &salt_of(salt)?).0;
    Ok(PyBytes::new(py, id.as_bytes()))
}
