//! The digest that names a chunk.

use std::fmt;
use std::str::FromStr;

/// Names a chunk everywhere: BLAKE3-256 of its content, or its name in a [`DedupScope`].
///
/// Content is compared with it by [`Digest::matches`], which knows both; never by `==`.
///
/// [`DedupScope`]: crate::DedupScope
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; Digest::LEN]);

/// A text that is not 64 hexadecimal digits.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a digest is 64 hexadecimal digits")]
pub struct ParseDigestError;

impl Digest {
    /// Bytes of a digest.
    pub const LEN: usize = 32;

    /// Returns the digest of `content`.
    pub fn of(content: &[u8]) -> Digest {
        Digest(*blake3::hash(content).as_bytes())
    }

    /// Returns the digest of the parts' bytes, one after the other.
    pub fn of_parts(parts: &[&[u8]]) -> Digest {
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(part);
        }
        Digest(*hasher.finalize().as_bytes())
    }

    /// Takes a digest from its bytes; any 32 bytes are a digest.
    pub const fn from_bytes(bytes: [u8; Digest::LEN]) -> Digest {
        Digest(bytes)
    }

    /// The digest's bytes.
    pub const fn as_bytes(&self) -> &[u8; Digest::LEN] {
        &self.0
    }

    /// First eight bytes, big-endian: uniform, so an index may use it as its hash.
    pub const fn prefix_u64(&self) -> u64 {
        let b = &self.0;
        u64::from_be_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]])
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl FromStr for Digest {
    type Err = ParseDigestError;

    fn from_str(text: &str) -> Result<Digest, ParseDigestError> {
        if text.len() != 2 * Digest::LEN || !text.is_ascii() {
            return Err(ParseDigestError);
        }
        let mut bytes = [0; Digest::LEN];
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| ParseDigestError)?;
            if !pair.bytes().all(|c| c.is_ascii_hexdigit()) {
                return Err(ParseDigestError);
            }
            *byte = u8::from_str_radix(pair, 16).map_err(|_| ParseDigestError)?;
        }
        Ok(Digest(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::Digest;

    #[test]
    fn text_form_round_trips() {
        let digest = Digest::of(b"acstor");
        assert_eq!(digest.to_string().parse(), Ok(digest));
        assert!(digest.matches(b"acstor"));
        assert!(!digest.matches(b"acsto"));
    }

    #[test]
    fn text_that_is_no_digest_is_refused() {
        for text in ["", "ab", &"g".repeat(64), &"+1".repeat(32), &"é".repeat(32)] {
            assert!(text.parse::<Digest>().is_err(), "{text}");
        }
    }

    #[test]
    fn is_blake3() {
        // First vector of the BLAKE3 reference implementation's test vectors: empty input.
        assert_eq!(
            Digest::of(b"").to_string(),
            "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
        );
    }
}
