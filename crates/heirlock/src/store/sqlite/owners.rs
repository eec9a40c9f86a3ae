//! The owner that was read or written last, as text and as data: a holder is read and written again and again, and one session asks for many keys
//! in one name.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use crate::lease::Owner;

/// The owner of the last ticket that came by.
#[derive(Default)]
pub(super) struct Owners(RefCell<Option<(Rc<str>, Arc<Owner>)>>);

impl Owners {
    /// The owner that this text tells of.
    pub(super) fn read(&self, text: &str) -> serde_json::Result<Arc<Owner>> {
        let mut last = self.0.borrow_mut();
        if let Some((_, owner)) = last.as_ref().filter(|(known, _)| **known == *text) {
            return Ok(Arc::clone(owner));
        }
        let owner = Arc::new(serde_json::from_str::<Owner>(text)?);
        *last = Some((text.into(), Arc::clone(&owner)));
        Ok(owner)
    }

    /// What is written of this owner.
    pub(super) fn text(&self, owner: &Arc<Owner>) -> serde_json::Result<Rc<str>> {
        let mut last = self.0.borrow_mut();
        if let Some((text, _)) = last.as_ref().filter(|(_, known)| Arc::ptr_eq(known, owner) || known == owner) {
            return Ok(Rc::clone(text));
        }
        let text: Rc<str> = serde_json::to_string(&**owner)?.into();
        *last = Some((Rc::clone(&text), Arc::clone(owner)));
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_owner_is_itself_again() {
        let owner = |name: &str| Arc::new(Owner { name: name.to_owned(), ..Owner::default() });
        let owners = Owners::default();
        for name in ["a", "a", "b", "a"] {
            let text = owners.text(&owner(name)).unwrap();
            assert_eq!(*text, *serde_json::to_string(&*owner(name)).unwrap());
            assert_eq!(owners.read(&text).unwrap(), owner(name));
            assert!(Rc::ptr_eq(&text, &owners.text(&owner(name)).unwrap()), "known, and not made anew");
        }
        assert!(owners.read("{").is_err());
        assert_eq!(owners.read(&owners.text(&owner("a")).unwrap()).unwrap(), owner("a"));
    }
}
