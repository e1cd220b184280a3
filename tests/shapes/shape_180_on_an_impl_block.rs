//! shape: 180
//! title: the attribute on an `impl` block
//! lost: clippy::manual_async_fn
//! lost: clippy::missing_const_for_fn
use shape_support::{block_on, send, yield_now};
use std::future::Future;

pub struct Store<T> {
    items: Vec<T>,
}

#[track(+err)]
impl<T: Clone + Send + Sync> Store<T> {
    /// How many at most.
    pub const LIMIT: usize = 2;

    pub const fn new() -> Self {
        Self { items: Vec::new() }
    }

    /// Adds.
    pub fn push(&mut self, item: T) -> Result<usize, T> {
        if self.items.len() == Self::LIMIT {
            return Err(item);
        }
        self.items.push(item);
        Ok(self.items.len())
    }

    #[must_use]
    pub fn first(&self) -> Option<&T> {
        let unused = 1;
        self.items.first()
    }

    pub async fn later(&self, n: usize) -> Result<T, String> {
        yield_now().await;
        self.items.get(n).cloned().ok_or_else(|| n.to_string())
    }

    pub fn iterator<'a>(&'a self) -> impl Iterator<Item = &'a T> + 'a {
        self.items.iter()
    }

    pub fn future(&self) -> impl Future<Output = usize> + '_ {
        async move { self.items.len() }
    }

    pub fn into_items(self) -> Vec<T> {
        self.items
    }

    fn dead(&self, mut x: u32) {}
}

// calls: Store::push 3, Store::first 1, Store::later 2, Store::iterator 1, Store::future 1, Store::into_items 1
pub fn exercise() -> String {
    let mut store = Store::new();
    let pushed = (store.push("a"), store.push("b"), store.push("c"));
    let later = (block_on(send(store.later(0))), block_on(store.later(7)));
    let counts = (store.iterator().count(), block_on(store.future()), store.first().copied());
    format!("{:?} {:?} {:?} {:?}", pushed, later, counts, store.into_items())
}
