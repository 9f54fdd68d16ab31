//! Names of files as text: they are bytes, and the text of a name must lead back to it.

use crate::error::BrowseError;

/// Returns bytes as text: what is no UTF-8, control characters and backslashes as `\xNN`.
#[must_use]
pub fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character == '\\' || character.is_control() {
                let mut bytes = [0; 4];
                character
                    .encode_utf8(&mut bytes)
                    .bytes()
                    .for_each(|byte| push_byte(&mut text, byte));
            } else {
                text.push(character);
            }
        }
        chunk.invalid().iter().for_each(|byte| push_byte(&mut text, *byte));
    }
    text
}

fn push_byte(text: &mut String, byte: u8) {
    use std::fmt::Write as _;
    let _ = write!(text, "\\x{byte:02x}");
}

/// Returns the bytes that a text of [`escape`] stands for.
///
/// # Errors
///
/// [`BrowseError::Invalid`] for a backslash that begins no `\xNN`.
pub fn unescape(text: &str) -> Result<Vec<u8>, BrowseError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        let byte = rest
            .get(at..at + 4)
            .and_then(|code| code.strip_prefix("\\x"))
            .filter(|code| code.bytes().all(|digit| digit.is_ascii_hexdigit()))
            .and_then(|code| u8::from_str_radix(code, 16).ok());
        let Some(byte) = byte else {
            return Err(BrowseError::Invalid(format!(
                "in the path {text:?} a backslash stands for no byte; write it as \\x5c"
            )));
        };
        bytes.push(byte);
        rest = &rest[at + 4..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn test_usual_names_are_left_as_they_are() {
        assert_eq!(escape("Übung 1.txt".as_bytes()), "Übung 1.txt");
        assert_eq!(escape(b"a\\b\n\xff"), "a\\x5cb\\x0a\\xff");
        assert_eq!(escape("\u{9b}31m".as_bytes()), "\\xc2\\x9b31m", "a terminal obeys it, too");
    }

    #[test]
    fn test_text_that_stands_for_no_bytes_is_refused() {
        for text in ["\\", "a\\x", "\\x1", "\\y00", "\\x+1", "\\xü"] {
            assert!(unescape(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn test_text_leads_back_to_the_bytes(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(unescape(&escape(&bytes)).unwrap(), bytes);
        }
    }
}
