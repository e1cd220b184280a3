//! shape: 117
//! title: functions built from fragments of every kind
//! gained: clippy::single_call_fn
//! lost: clippy::missing_const_for_fn
//! lost: clippy::needless_pub_self
//! lost: clippy::pub_with_shorthand
//! lost: clippy::unused_async
//! reworded: clippy::missing_errors_doc
use shape_support::{block_on, yield_now};

macro_rules! whole {
    ($item:item) => {
        #[track]
        $item
    };
}
whole! {
    pub fn whole(n: u32) -> u32 { n }
}
whole! {
    pub async fn whole_later(&mut first: &mut u32) -> u32 { first }
}

macro_rules! body {
    ($vis:vis $name:ident $type:ty, $body:block) => {
        #[track]
        $vis fn $name(_input: u32) -> $type $body
    };
    (err $vis:vis $name:ident $type:ty, $body:block) => {
        #[track(+err)]
        $vis fn $name(_input: u32) -> $type $body
    };
    (again $($rest:tt)*) => { body!($($rest)*); };
}
body!(pub from_block u32, { 3 });
body!(err pub(crate) failing Result<u32, String>, { return Err("four".to_owned()); });
body!(again again again_from_block u32, { let five = 5; five });
body!(never !, { panic!("never") });

macro_rules! parts {
    ($(#[$meta:meta])* $vis:vis fn $name:ident<$($lt:lifetime)? $($generic:ident: $bound:path)?>($($arg:pat => $ty:ty),*) -> $out:ty { $first:stmt; $value:expr }) => {
        $(#[$meta])*
        #[track(+err)]
        $vis fn $name<$($lt)? $($generic: $bound)?>($($arg: $ty),*) -> $out { $first; $value }
    };
}
parts! {
    /// Documented.
    #[must_use]
    pub fn sum<T: Into<u32>>((a, b) => (u32, T), c => u32) -> Result<u32, ()> {
        let more: u32 = b.into();
        Ok(a + c + more)
    }
}
parts! {
    pub(self) fn borrowed<'a>(x => &'a str, mut y => u8) -> Result<&'a str, &'a str> { y += 1; if y > 1 { Err(x) } else { Ok(x) } }
}

macro_rules! tokens {
    ($($all:tt)*) => {
        #[track]
        $($all)*
    };
}
tokens! { pub async unsafe fn tokens(n: u32) -> u32 { yield_now().await; n } }

macro_rules! args {
    ($name:ident, ($($args:tt)*), $($body:tt)*) => {
        #[track]
        pub fn $name($($args)*) -> u32 { $($body)* }
    };
}
args!(from_tokens, (a: u32, [b, ..]: [u32; 3]), let sum = a + b; sum + 1);
args!(empty_args, (), 7);

pub struct Counter(u32);

macro_rules! accessors {
    ($($field:tt: $name:ident / $set:ident: $ty:ty),*) => {
        impl Counter {
            $(
                #[track]
                pub fn $name(&self) -> &$ty { &self.$field }
                #[track(+err)]
                pub async fn $set(&mut self, value: $ty) -> Result<$ty, $ty> { Ok(std::mem::replace(&mut self.$field, value)) }
            )*
        }
    };
}
accessors!(0: count / set_count: u32);

// calls: from_block 1, failing 1, again_from_block 1, never 1, sum 1, borrowed 1, from_tokens 1, empty_args 1, count 1, set_count 1, whole 1, whole_later 1, tokens 1
pub fn exercise() -> String {
    let mut counter = Counter(4);
    let set = block_on(counter.set_count(5));
    let blocks = (from_block(1), failing(1), again_from_block(1), shape_support::panic_of(|| never(1)));
    let parts = (sum((1, 2_u8), 3), borrowed("x", 1), from_tokens(1, [2, 3, 4]), empty_args());
    // SAFETY: there is no condition.
    let later = (block_on(whole_later(&mut 2)), block_on(unsafe { tokens(3) }));
    format!("{} {:?} {:?} {:?} {:?} {}", whole(1), blocks, parts, later, set, counter.count())
}
