//! shape: 112
//! title: items in the body: uses, macros, constants, modules, types and others
use shape_support::{block_on, yield_now};

pub struct S(u32);

#[track]
pub fn sync(n: u32) -> u32 {
    use std::collections::BTreeMap as Map;
    const MORE: u32 = 2;
    static LOTS: u32 = 3;
    macro_rules! add {
        ($a:expr) => {
            $a + n
        };
    }
    mod inner {
        pub(super) const DEEP: u32 = 4;
        pub(super) fn deep() -> u32 {
            DEEP
        }
    }
    struct Local(u32);
    impl Local {
        fn get(&self) -> u32 {
            self.0
        }
    }
    impl From<Local> for S {
        fn from(local: Local) -> Self {
            Self(local.0)
        }
    }
    type Alias = Local;
    enum Kind {
        One,
    }
    let mut map = Map::new();
    map.insert(1, Alias { 0: 5 }.get());
    let Kind::One = Kind::One;
    add!(MORE + LOTS) + inner::deep() + map[&1] + S::from(Local(6)).0
}

#[track(+err)]
pub async fn later(n: u32) -> Result<u32, String> {
    const MORE: u32 = 2;
    #[derive(Debug, Clone, PartialEq)]
    struct Local {
        n: u32,
    }
    fn helper(local: &Local) -> Result<u32, String> {
        if local.n == 0 {
            return Err(format!("{:?}", local));
        }
        Ok(local.n)
    }
    let local = Local { n };
    yield_now().await;
    let value = helper(&local)?;
    trait Double {
        fn double(&self) -> u32;
    }
    impl Double for Local {
        fn double(&self) -> u32 {
            self.n * 2
        }
    }
    Ok(value + MORE + local.double())
}

#[track(+err)]
pub fn counts() -> Result<u32, ()> {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNT: AtomicU32 = AtomicU32::new(0);
    thread_local! {
        static HERE: std::cell::Cell<u32> = const { std::cell::Cell::new(7) };
    }
    Ok(COUNT.fetch_add(1, Ordering::Relaxed) + HERE.with(std::cell::Cell::get))
}

// calls: later 2, counts 2
pub fn exercise() -> String {
    format!("{} {:?} {:?} {:?} {:?}", sync(1), block_on(later(0)), block_on(later(1)), counts(), counts())
}
