//! The identity of a disk: an image's or a volume's UUID.

use std::fmt;
use std::str::FromStr;

/// UUID of an image or volume, in the byte order of its text form.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DiskId([u8; 16]);

/// A text that is not a UUID in the form 8-4-4-4-12.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a disk id is a UUID such as 01234567-89ab-cdef-0123-456789abcdef")]
pub struct ParseDiskIdError;

impl DiskId {
    /// Takes an id from its bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> DiskId {
        DiskId(bytes)
    }

    /// The id's bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for DiskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, byte) in self.0.iter().enumerate() {
            if matches!(position, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for DiskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DiskId({self})")
    }
}

impl FromStr for DiskId {
    type Err = ParseDiskIdError;

    fn from_str(text: &str) -> Result<DiskId, ParseDiskIdError> {
        let text = text.as_bytes();
        if text.len() != 36 {
            return Err(ParseDiskIdError);
        }
        let mut bytes = [0; 16];
        let mut digits = 0;
        for (position, &character) in text.iter().enumerate() {
            if matches!(position, 8 | 13 | 18 | 23) {
                if character != b'-' {
                    return Err(ParseDiskIdError);
                }
                continue;
            }
            let digit = (character as char).to_digit(16).ok_or(ParseDiskIdError)? as u8;
            bytes[digits / 2] = bytes[digits / 2] << 4 | digit;
            digits += 1;
        }
        Ok(DiskId(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::DiskId;

    #[test]
    fn text_form_round_trips() {
        let text = "6f1c8a52-0a5e-4d27-9a52-b3ad2a2c91f0";
        let id: DiskId = text.parse().unwrap();
        assert_eq!(id.to_string(), text);
        assert_eq!(id.as_bytes()[..4], [0x6f, 0x1c, 0x8a, 0x52]);
    }

    #[test]
    fn text_that_is_no_uuid_is_refused() {
        for text in [
            "",
            "6f1c8a520a5e4d279a52b3ad2a2c91f0",
            "6f1c8a52-0a5e-4d27-9a52-b3ad2a2c91f",
            "6f1c8a52-0a5e-4d27-9a52+b3ad2a2c91f0",
            "zf1c8a52-0a5e-4d27-9a52-b3ad2a2c91f0",
        ] {
            assert!(text.parse::<DiskId>().is_err(), "{text}");
        }
    }
}
