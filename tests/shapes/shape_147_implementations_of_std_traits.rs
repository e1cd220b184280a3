//! shape: 147
//! title: implementations of the standard library's traits
//! lost: clippy::derivable_impls
use shape_support::{block_on, poll_once, yield_now};
use std::cmp::Ordering;
use std::convert::TryFrom;
use std::fmt;
use std::future::Future;
use std::hash::{Hash, Hasher};
use std::iter::FromIterator;
use std::ops::{Add, Index, IndexMut, Neg, Not};
use std::pin::Pin;
use std::str::FromStr;
use std::task::{Context, Poll};

pub struct N(u32);

impl Clone for N {
    #[track]
    fn clone(&self) -> Self {
        N(self.0)
    }
}
impl Default for N {
    #[track]
    fn default() -> Self {
        N(0)
    }
}
impl fmt::Debug for N {
    #[track]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "N{}", self.0)
    }
}
impl fmt::Display for N {
    #[track(+err, name = "display")]
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("zero");
        }
        write!(f, "{}", self.0)
    }
}
impl PartialEq for N {
    #[track]
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
impl Eq for N {}
impl PartialOrd for N {
    #[track]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.0.cmp(&other.0))
    }
}
impl Hash for N {
    #[track]
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}
impl Add for N {
    type Output = N;
    #[track]
    fn add(self, other: N) -> N {
        N(self.0 + other.0)
    }
}
impl<'a> Add<&'a N> for &N {
    type Output = u32;
    #[track(name = "add_references")]
    fn add(self, other: &'a N) -> u32 {
        self.0 + other.0
    }
}
impl Neg for N {
    type Output = i64;
    #[track]
    fn neg(self) -> Self::Output {
        -i64::from(self.0)
    }
}
impl Not for &N {
    type Output = bool;
    #[track]
    fn not(self) -> bool {
        self.0 == 0
    }
}
pub struct List(Vec<N>);
impl Index<usize> for List {
    type Output = N;
    #[track]
    fn index(&self, n: usize) -> &N {
        &self.0[n]
    }
}
impl IndexMut<usize> for List {
    #[track]
    fn index_mut(&mut self, n: usize) -> &mut Self::Output {
        &mut self.0[n]
    }
}
impl FromIterator<u32> for List {
    #[track]
    fn from_iter<I: IntoIterator<Item = u32>>(iterator: I) -> Self {
        Self(iterator.into_iter().map(N).collect())
    }
}
impl IntoIterator for List {
    type Item = N;
    type IntoIter = std::vec::IntoIter<N>;
    #[track]
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
impl Extend<u32> for List {
    #[track]
    fn extend<I: IntoIterator<Item = u32>>(&mut self, iterator: I) {
        for n in iterator {
            self.0.push(N(n));
        }
    }
}
impl FromStr for N {
    type Err = std::num::ParseIntError;
    #[track(+err)]
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.parse()?))
    }
}
impl From<u32> for N {
    #[track]
    fn from(n: u32) -> Self {
        Self(n)
    }
}
impl TryFrom<i32> for N {
    type Error = ();
    #[track(+err)]
    fn try_from(n: i32) -> Result<Self, <Self as TryFrom<i32>>::Error> {
        if n < 0 { Err(()) } else { Ok(Self(n as u32)) }
    }
}
impl AsRef<u32> for N {
    #[track]
    fn as_ref(&self) -> &u32 {
        &self.0
    }
}
pub struct Countdown(u32);
impl Iterator for Countdown {
    type Item = u32;
    #[track]
    fn next(&mut self) -> Option<u32> {
        self.0 = self.0.checked_sub(1)?;
        Some(self.0)
    }
    #[track]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, None)
    }
}
impl Future for Countdown {
    type Output = &'static str;
    #[track]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.0 == 0 {
            return Poll::Ready("done");
        }
        self.0 -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
impl Drop for Countdown {
    #[track]
    fn drop(&mut self) {
        self.0 = 9;
    }
}
impl std::error::Error for N {
    #[track]
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        None
    }
}

// calls: next 4, poll 2, drop 2, try_from 2, display 2
pub fn exercise() -> String {
    let mut list: List = [1, 2].iter().copied().collect();
    list.extend(vec![3]);
    list[0].0 += 4;
    let a = (list[0].clone(), N::default().to_string(), N(1) == N(2), N(1) < N(2), -N(3), !&N(4), &N(5) + &N(6));
    let mut hasher = std::collections::hash_map::DefaultHasher::new();
    N(1).hash(&mut hasher);
    let b = ((N(1) + N(2)).to_string(), "x".parse::<N>().is_err(), N::from(4).0, N::try_from(-1).err(), N::try_from(1).is_ok(), *N(5).as_ref());
    let mut counted = Vec::new();
    {
        let mut countdown = Countdown(3);
        while let Some(n) = countdown.next() {
            counted.push(n);
        }
        let _ = countdown.size_hint();
    }
    let done = block_on(async {
        let mut countdown = Box::pin(Countdown(1));
        let _ = poll_once(countdown.as_mut());
        yield_now().await;
        countdown.await
    });
    let rest = list.into_iter().count();
    format!("{:?} {:?} {:?} {} {} {}", a, b, counted, done, rest, std::error::Error::source(&N(1)).is_none())
}
