//! What errors and snapshots call a lock.

use std::borrow::Cow;
use std::sync::Arc;

/// The name of a lock, and of one of many that share a name also which it is.
#[derive(Clone, Debug, Default)]
pub(super) struct Name {
    /// By this alone the check of orders goes: locks of one name are taken for one another.
    pub(super) class: Option<&'static str>,
    /// A key, in its user's words.
    pub(super) place: Option<Arc<str>>,
}

impl Name {
    /// `accounts[bob]`, as far as there is anything to say.
    pub(super) fn text(&self) -> Option<Cow<'static, str>> {
        match (self.class, &self.place) {
            (class, None) => class.map(Cow::Borrowed),
            (class, Some(place)) => Some(Cow::Owned(format!("{}[{place}]", class.unwrap_or_default()))),
        }
    }
}
