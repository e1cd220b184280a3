//! shape: 62
//! title: methods of generic types, constants of `Self`
//! lost: clippy::missing_const_for_fn
//! lost: clippy::unused_async
use shape_support::{block_on, yield_now};
use std::marker::PhantomData;

pub struct W<T, const N: usize>([T; N]);

impl<T: Clone, const N: usize> W<T, N> {
    const K: usize = N + 1;

    #[track]
    pub fn sync(&self) -> usize {
        Self::K + N
    }

    #[track(+err)]
    pub async fn later(&self) -> Result<[T; N], [T; 1]> {
        yield_now().await;
        if Self::K > 100 {
            return Err([self.0[0].clone()]);
        }
        Ok(self.0.clone())
    }

    #[track(+err)]
    pub fn owned(self) -> Result<Self, W<T, 0>> {
        if N == 0 {
            return Err(W([]));
        }
        Ok(self)
    }

    #[track]
    pub fn map<U>(self, f: impl Fn(T) -> U) -> W<U, N> {
        W(self.0.map(f))
    }
}

pub struct Marked<'a, T: ?Sized>(u32, PhantomData<&'a T>);

impl<'a, T: ?Sized + 'a> Marked<'a, T> {
    #[track]
    pub fn new(n: u32) -> Self {
        Self(n, PhantomData)
    }

    #[track]
    pub async fn get(self) -> u32 {
        self.0
    }
}

pub fn exercise() -> String {
    let w = W([1, 2]);
    let later = block_on(w.later());
    let owned = w.owned().map(|w| w.0).map_err(|w| w.0.len());
    let marked = block_on(Marked::<str>::new(4).get());
    format!("{} {:?} {:?} {:?} {}", W([0_u8; 3]).sync(), later, owned, W([1, 2]).map(|n| n * 2).0, marked)
}
