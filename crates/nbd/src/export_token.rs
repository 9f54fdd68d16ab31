//! The secret by which the clients of a server call its export.

use subtle::ConstantTimeEq;

use crate::NbdError;
use crate::protocol::NAME_LEN_MAX;

/// Takes the place of an export's name: a client that does not know it is told of nothing, and one
/// that tries names learns nothing from the time that an answer takes.
#[derive(Clone)]
pub struct ExportToken(Box<[u8]>);

impl ExportToken {
    /// Takes a text of 1 to 4096 bytes without NUL.
    ///
    /// # Errors
    /// [`NbdError::Token`] for another one.
    pub fn new(text: &str) -> Result<ExportToken, NbdError> {
        if text.is_empty() || text.len() > NAME_LEN_MAX || text.contains('\0') {
            return Err(NbdError::Token);
        }
        Ok(ExportToken(text.as_bytes().into()))
    }

    /// Returns whether a client's `name` is it. The length is no secret.
    pub(crate) fn is(&self, name: &[u8]) -> bool {
        self.0.ct_eq(name).into()
    }
}

impl std::fmt::Debug for ExportToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ExportToken")
    }
}

#[cfg(test)]
mod tests {
    use super::ExportToken;

    #[test]
    fn test_only_the_whole_token_is_it() {
        let token = ExportToken::new("0123abcd").unwrap();
        assert!(token.is(b"0123abcd"));
        for other in [&b""[..], b"0123abc", b"0123abcde", b"0123abcD", b"\x000123abcd"] {
            assert!(!token.is(other), "{other:?}");
        }
        assert_eq!(format!("{token:?}"), "ExportToken");
    }

    #[test]
    fn test_a_text_that_is_no_name_is_refused() {
        for text in ["", "a\0b", &"x".repeat(4097)] {
            assert!(ExportToken::new(text).is_err());
        }
    }
}
