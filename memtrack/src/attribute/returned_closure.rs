//! A returned closure on its way past a type that states its signature.

/// The place of a closure whose signature is stated by the type that is wanted of [`ReturnedClosure::state`].
#[derive(Debug)]
pub struct ReturnedClosure<T>(Option<T>);

impl<T> ReturnedClosure<T> {
    /// Not yet there.
    #[inline]
    pub const fn none() -> Self {
        Self(None)
    }

    /// Takes the closure. Where a pointer to a `dyn Fn…` is wanted, rustc reads from it what signature `closure` has.
    ///
    /// Two types that are one: with one type alone, rustc would want a place for the `dyn Fn…` too.
    #[inline]
    pub fn state<C: Is<T>>(&mut self, closure: C) -> *const C {
        self.0 = Some(closure.it());
        std::ptr::null()
    }

    /// The closure.
    ///
    /// # Panics
    ///
    /// If it is not there.
    #[inline]
    pub fn take(self) -> T {
        match self.0 {
            Some(closure) => closure,
            None => unreachable!("a closure is taken before it is there"),
        }
    }
}

/// A type that is `T`.
pub trait Is<T> {
    /// The value as it is.
    fn it(self) -> T;
}

impl<T> Is<T> for T {
    #[inline]
    fn it(self) -> T {
        self
    }
}
