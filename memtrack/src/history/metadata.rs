//! A text that a thread attaches to all it does.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use crate::sync::lock;

/// A text's number; 0 is the empty text.
pub(super) type MetadataId = u32;

/// Every text ever set, by number. Entries refer to them for as long as a history lives, so none is taken out.
static TEXTS: LazyLock<Mutex<Texts>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Texts {
    ids: HashMap<Arc<str>, MetadataId>,
    /// Of the texts from number 1.
    texts: Vec<Arc<str>>,
}

thread_local! {
    static CURRENT: Cell<MetadataId> = const { Cell::new(0) };
}

/// Sets the text that this thread's events carry as `user_metadata` from now on, as `torch.cuda.memory._set_memory_metadata`
/// does; empty for none.
///
/// Each distinct text is kept until the process ends: name phases and layers with it rather than count steps. One lock a
/// call; what it adds to an event is one read of a thread-local number.
pub fn set_memory_metadata(text: &str) {
    let id = if text.is_empty() { 0 } else { number(text) };
    CURRENT.set(id);
}

/// The text that this thread's events carry, as `torch.cuda.memory._get_memory_metadata`.
pub fn memory_metadata() -> Arc<str> {
    Resolver::new().text(current())
}

pub(super) fn current() -> MetadataId {
    CURRENT.get()
}

fn number(text: &str) -> MetadataId {
    let mut texts = lock(&TEXTS);
    if let Some(id) = texts.ids.get(text) {
        return *id;
    }
    let text: Arc<str> = text.into();
    texts.texts.push(Arc::clone(&text));
    let id = texts.texts.len() as MetadataId;
    texts.ids.insert(text, id);
    id
}

/// The texts of numbers, looked up once each.
pub(super) struct Resolver {
    known: HashMap<MetadataId, Arc<str>>,
}

impl Resolver {
    pub(super) fn new() -> Self {
        Self { known: HashMap::from([(0, Arc::from(""))]) }
    }

    pub(super) fn text(&mut self, id: MetadataId) -> Arc<str> {
        let known = self.known.entry(id).or_insert_with(|| match (id as usize).checked_sub(1) {
            Some(index) => lock(&TEXTS).texts.get(index).cloned().unwrap_or_default(),
            None => Arc::default(),
        });
        Arc::clone(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_has_its_own_text() {
        set_memory_metadata("layer 1");
        let other = std::thread::spawn(|| {
            let before = memory_metadata();
            set_memory_metadata("layer 2");
            (before, memory_metadata())
        });
        let (before, after) = other.join().unwrap();
        assert_eq!((&*before, &*after, &*memory_metadata()), ("", "layer 2", "layer 1"));
        set_memory_metadata("");
        assert_eq!(&*memory_metadata(), "");
    }
}
