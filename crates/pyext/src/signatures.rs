//! Ed25519 signatures (RFC 8032): of small documents, so that nothing here releases the GIL.

use acstor_types::ErrorKind;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};

use crate::errors::raise;

const SEED_LEN: usize = 32;
/// Beginning of a PKCS#8 document of version 1, before the seed (RFC 8410, section 7).
const PKCS8_HEAD: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// A private key. It shows itself to nobody.
#[pyclass(frozen, module = "acstor._dataplane")]
pub(crate) struct SigningKey(Ed25519KeyPair);

#[pymethods]
impl SigningKey {
    /// Reads a PKCS#8 document; the ones that openssl makes lack the public key.
    #[new]
    fn new(pkcs8: &[u8]) -> PyResult<SigningKey> {
        Ed25519KeyPair::from_pkcs8_maybe_unchecked(pkcs8)
            .map(SigningKey)
            .map_err(|_| raise(ErrorKind::Invalid, "this is no private key of Ed25519"))
    }

    #[getter]
    fn public_key<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.public_key().as_ref())
    }

    fn sign<'py>(&self, py: Python<'py>, message: &[u8]) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.sign(message).as_ref())
    }
}

/// Makes a private key: a PKCS#8 document of version 1, which openssl reads.
#[pyfunction]
pub(crate) fn make_signing_key(py: Python<'_>) -> PyResult<Bound<'_, PyBytes>> {
    let mut document = [0; PKCS8_HEAD.len() + SEED_LEN];
    let (head, seed) = document.split_at_mut(PKCS8_HEAD.len());
    head.copy_from_slice(&PKCS8_HEAD);
    SystemRandom::new()
        .fill(seed)
        .map_err(|_| raise(ErrorKind::Unavailable, "the kernel gives no random bytes"))?;
    Ok(PyBytes::new(py, &document))
}

/// Returns whether a message has this signature of this public key; of a malformed key, no message.
#[pyfunction]
pub(crate) fn is_signed_by(public_key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    UnparsedPublicKey::new(&ED25519, public_key).verify(message, signature).is_ok()
}
