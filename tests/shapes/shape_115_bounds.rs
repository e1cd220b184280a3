//! shape: 115
//! title: where clauses: higher-ranked, on `Self`, on lifetimes, on results
use shape_support::{block_on, yield_now};
use std::fmt::Debug;
use std::hash::Hash;
use std::ops::Add;

#[track]
pub fn higher_ranked<F, R>(f: F) -> usize
where
    F: for<'a> Fn(&'a str) -> R,
    R: AsRef<str>,
    for<'a> &'a F: Sized,
    for<'a, 'b> (&'a R, &'b R): Sized,
{
    f("abc").as_ref().len()
}

#[track(+err)]
pub fn added<'a, T>(x: &'a T, y: &'a T) -> Result<<&'a T as Add<&'a T>>::Output, (T, T)>
where
    T: Clone + 'a,
    &'a T: Add<&'a T>,
    <&'a T as Add<&'a T>>::Output: Debug + PartialEq,
{
    if x + y == x + x {
        return Err((x.clone(), y.clone()));
    }
    Ok(x + y)
}

#[track]
pub async fn outlives<'a: 'b, 'b, K>(x: &'a K, y: &'b K) -> &'b K
where
    K: Hash + Ord + ?Sized + Sync,
{
    yield_now().await;
    std::cmp::max(x, y)
}

pub trait Chain {
    #[track]
    fn chained(self) -> Vec<Self>
    where
        Self: Sized + Clone,
    {
        vec![self.clone(), self]
    }

    #[track(+err)]
    fn compared<T: ?Sized>(&self, other: &T) -> Result<bool, ()>
    where
        Self: PartialEq<T>,
    {
        Ok(self == other)
    }
}

impl Chain for String {}

#[track]
pub fn sized<T: ?Sized + Debug>(x: &T) -> String {
    format!("{:?}", x)
}

// calls: added 2, sized 2
pub fn exercise() -> String {
    let added = (added(&1, &2), added(&1, &1));
    let rest = (block_on(outlives("a", "b")), "x".to_owned().chained(), "y".to_owned().compared("y"), sized("z"), sized(&[1]));
    format!("{} {:?} {:?}", higher_ranked(|s| s.to_owned()), added, rest)
}
