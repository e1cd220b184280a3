//! Shapes of functions with the option `err`, whose body stands in a closure: each must compile as without the
//! attribute, raise no lint of its own, and compute the same.
#![deny(warnings, clippy::all, clippy::pedantic, unreachable_code)]
#![deny(unsafe_code, single_use_lifetimes, elided_lifetimes_in_paths, unused_qualifications, rust_2018_idioms)]
#![allow(clippy::unnecessary_wraps, clippy::unused_async, reason = "the shapes are short")]
#![allow(clippy::needless_return, clippy::ptr_arg, clippy::unwrap_used, clippy::elidable_lifetime_names)]

use memtrack::track_memory;
use memtrack_tests::futures::block_on;
use std::io;
use std::num::ParseIntError;
use std::panic::Location;

#[test]
fn shape_01_question_mark_and_early_return() {
    #[track_memory(err)]
    fn f(x: &str) -> Result<u32, ParseIntError> {
        let v: u32 = x.parse()?;
        if v == 0 {
            return Ok(1);
        }
        Ok(v)
    }
    assert_eq!((f("0"), f("2")), (Ok(1), Ok(2)));
    assert!(f("x").is_err());
}

#[test]
fn shape_03_impl_trait_inside_the_result() {
    #[track_memory(err)]
    fn f(n: u32) -> Result<impl Iterator<Item = u32>, String> {
        if n == 9 {
            return Err("nine".to_owned());
        }
        Ok(0..n)
    }
    #[track_memory(err)]
    async fn g(n: u32) -> Result<impl Iterator<Item = u32>, String> {
        if n == 9 {
            return Err("nine".to_owned());
        }
        Ok(0..n)
    }
    assert_eq!(f(3).unwrap().count(), 3);
    assert_eq!(block_on(g(3)).unwrap().count(), 3);
    assert!(f(9).is_err() && block_on(g(9)).is_err());
}

#[test]
fn shape_08_exclusive_borrow_returned_as_shared() {
    #[track_memory(err)]
    fn f(x: &mut u8) -> Result<&u8, String> {
        Ok(x)
    }
    #[track_memory(err)]
    async fn g(x: &mut u8) -> Result<&u8, String> {
        Ok(x)
    }
    assert_eq!((f(&mut 1), block_on(g(&mut 2))), (Ok(&1), Ok(&2)));
}

#[test]
fn shape_09_exclusive_borrow_of_a_part() {
    #[track_memory(err)]
    fn f(x: &mut Vec<u8>) -> Result<&mut u8, String> {
        x.first_mut().ok_or_else(|| "empty".to_owned())
    }
    assert_eq!(f(&mut vec![1]), Ok(&mut 1));
    assert!(f(&mut vec![]).is_err());
}

struct Reading<'a>(&'a mut u8);

#[test]
fn shape_10_named_lifetime_in_a_struct() {
    #[track_memory(err)]
    fn f<'a>(x: &'a mut u8) -> Result<Reading<'a>, io::Error> {
        if *x == 0 {
            Err(io::ErrorKind::NotFound)?;
        }
        Ok(Reading(x))
    }
    assert_eq!(*f(&mut 1).unwrap().0, 1);
    assert!(f(&mut 0).is_err());
}

#[test]
fn shape_16_local_types_named_as_the_prelude() {
    mod inner {
        #[allow(dead_code)]
        pub(super) struct Ok;
        #[allow(dead_code)]
        pub(super) enum Option {
            Some,
            None,
        }
    }
    #[track_memory(err)]
    fn f() -> Result<u8, u8> {
        #[allow(unused_imports)]
        use inner::{Ok, Option, Option::None, Option::Some};
        Err(1)
    }
    assert_eq!(f(), Err(1));
}

struct Store(Vec<String>);

struct View<'a>(&'a str);

impl Store {
    #[track_memory(err)]
    fn find(&self, k: &str) -> Result<View<'_>, String> {
        let found = self.0.iter().find(|name| *name == k).ok_or("none")?;
        Ok(View(found))
    }
    #[track_memory(err)]
    async fn find_later(&self, k: &str) -> Result<View<'_>, String> {
        let found = self.0.iter().find(|name| *name == k).ok_or("none")?;
        Ok(View(found))
    }
    #[track_memory(err)]
    fn grow(&mut self, k: &str) -> Result<&mut String, String> {
        self.0.push(k.to_owned());
        self.0.last_mut().ok_or_else(String::new)
    }
    #[track_memory(err)]
    fn into_first(mut self) -> Result<String, Self> {
        if self.0.is_empty() {
            return Err(self);
        }
        Ok(self.0.remove(0))
    }
}

#[test]
fn shape_47_elided_lifetimes_and_receivers() {
    let mut store = Store(vec!["a".to_owned()]);
    assert_eq!(store.find("a").unwrap().0, "a");
    assert_eq!(block_on(store.find_later("a")).unwrap().0, "a");
    assert!(store.find("b").is_err() && block_on(store.find_later("b")).is_err());
    store.grow("c").unwrap().push('d');
    assert_eq!(store.into_first().ok().unwrap(), "a");
}

#[test]
fn shape_49_coercions() {
    type Boxed = Box<dyn std::error::Error>;
    #[track_memory(err)]
    fn f(n: u8) -> Result<Box<dyn std::fmt::Debug>, Boxed> {
        if n == 0 {
            return Err("zero".into());
        }
        if n == 1 {
            return Ok(Box::new("one"));
        }
        Ok(Box::new(n))
    }
    assert!(f(0).is_err());
    assert_eq!(format!("{:?}{:?}", f(1).unwrap(), f(2).unwrap()), "\"one\"2");
}

type Result2<T, E = io::Error> = Result<T, E>;

#[test]
fn shape_50_alias_of_result() {
    #[track_memory(err)]
    fn f(n: u8) -> Result2<u8> {
        Ok(n)
    }
    #[track_memory(err)]
    async fn g(n: u8) -> Result2<u8> {
        Ok(n)
    }
    assert_eq!(f(1).unwrap() + block_on(g(2)).unwrap(), 3);
}

#[test]
fn shape_52_track_caller() {
    #[track_memory(err)]
    #[track_caller]
    fn f(n: u32) -> Result<u32, ParseIntError> {
        let parse = |text: &str| {
            return text.parse::<u32>();
        };
        if n == 0 {
            return Ok(0);
        }
        if n == 1 {
            parse("x")?;
        }
        Ok(Location::caller().line())
    }
    assert_eq!(f(2), Ok(line!()));
    assert_eq!(f(0), Ok(0));
    assert!(f(1).is_err());
}

#[test]
fn patterns_and_moves() {
    #[track_memory(err)]
    fn f((a, mut b): (Vec<u8>, Vec<u8>), _: u8, mut c: u8) -> Result<Vec<u8>, u8> {
        c += 1;
        b.push(c);
        if a.is_empty() { Err(c) } else { Ok(b) }
    }
    assert_eq!(f((vec![1], vec![]), 2, 3), Ok(vec![4]));
    assert_eq!(f((vec![], vec![]), 2, 3), Err(4));
}

#[test]
fn generic_results() {
    #[track_memory(err)]
    fn f<T, E: Clone>(x: Result<T, &E>, k: impl Fn(T) -> T) -> Result<T, E> {
        Ok(k(x.map_err(Clone::clone)?))
    }
    assert_eq!(f(Ok::<_, &u8>(1), |x| x + 1), Ok(2));
    assert_eq!(f(Err::<u8, _>(&3), |x| x), Err(3));
}
