//! The name of a thing that is locked.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Error, Kind, Result};

/// The longest key, in bytes of UTF-8.
pub const MAX_KEY_BYTES: usize = 512;

/// The name of a thing that is locked: 1 to 512 bytes of UTF-8 without control characters.
///
/// Anything else is refused; nothing is ever truncated or mangled, so two different names are two different locks.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Key(Arc<str>);

impl Key {
    /// Checks the name and makes a key of it.
    ///
    /// # Errors
    /// `Invalid` if it is empty, longer than 512 bytes, or has a control character.
    ///
    /// ```
    /// use heirlock::lease::Key;
    /// assert_eq!(Key::new("nightly {report} 🦀").unwrap().as_str(), "nightly {report} 🦀");
    /// assert!(Key::new("two\nlines").unwrap_err().is_invalid());
    /// ```
    pub fn new(name: impl AsRef<str>) -> Result<Key> {
        let name = name.as_ref();
        check_part(name)?;
        if name.is_empty() {
            return Err(Error::new(Kind::Invalid, "a lock's name must not be empty: give it 1 to 512 bytes"));
        }
        Ok(Key(name.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What holds for a key and for the start of one: its length and its characters.
///
/// # Errors
/// `Invalid`, naming the first character that cannot stand in a key, or the length.
pub fn check_part(text: &str) -> Result<()> {
    if text.len() > MAX_KEY_BYTES {
        return Err(Error::new(
            Kind::Invalid,
            format!("a lock's name has at most {MAX_KEY_BYTES} bytes, and this has {}: shorten it", text.len()),
        ));
    }
    if let Some((at, c)) = text.char_indices().find(|(_, c)| c.is_control()) {
        return Err(Error::new(Kind::Invalid, format!("a lock's name must not have control characters: take out {c:?} at byte {at}")));
    }
    Ok(())
}

impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl From<Key> for String {
    fn from(key: Key) -> String {
        key.as_str().to_owned()
    }
}

/// Text from outside is checked like any other name.
impl TryFrom<String> for Key {
    type Error = Error;

    fn try_from(name: String) -> Result<Key> {
        Key::new(name)
    }
}

impl FromStr for Key {
    type Err = Error;

    fn from_str(name: &str) -> Result<Key> {
        Key::new(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bounds_of_the_length() {
        assert!(Key::new("").is_err());
        assert!(Key::new("x".repeat(512)).is_ok());
        let error = Key::new("é".repeat(257)).unwrap_err();
        assert!(error.to_string().contains("514"), "{error}");
    }

    proptest! {
        #[test]
        fn any_text_is_taken_whole_or_refused(text in any::<String>()) {
            match Key::new(&text) {
                Ok(key) => prop_assert_eq!(key.as_str(), text),
                Err(error) => {
                    prop_assert!(error.is_invalid());
                    prop_assert!(text.is_empty() || text.len() > 512 || text.chars().any(char::is_control));
                    prop_assert!(!error.to_string().contains('\n'));
                }
            }
        }
    }
}
