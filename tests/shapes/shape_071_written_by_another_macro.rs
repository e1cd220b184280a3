//! shape: 71
//! title: the attribute in another attribute's output, `crate = …`
//! lost: clippy::missing_const_for_fn
use shape_support::{block_on, yield_now};

#[track(via = shape_support::measured)]
pub fn sync(x: u32) -> u32 {
    x + 1
}

#[track(+err, via = shape_support::measured)]
pub async fn later(x: &str, (a, _): (u32, u32)) -> Result<u32, String> {
    yield_now().await;
    if a == 0 {
        return Err(x.to_owned());
    }
    Ok(a)
}

#[track(+err, crate = shape_support::memtrack)]
pub fn elsewhere(mut x: u32) -> Result<u32, u32> {
    x += 1;
    Err(x)
}

pub struct S(u32);

impl S {
    #[track(+err, via = shape_support::measured)]
    pub fn owned(self, more: u32) -> Result<u32, u32> {
        Ok(self.0 + more)
    }
}

shape_support::emitted! {
    #[track(+err, crate = ::shape_support::memtrack)]
    pub fn emitted(x: u32, (a, mut b): (u32, u32)) -> Result<u32, u32> {
        let value = x + a;
        b += 1;
        if value == 0 {
            return Err(b);
        }
        Ok(value + b)
    }

    impl S {
        #[track]
        pub async fn emitted_method(&mut self, n: u32) -> u32 {
            self.0 += n;
            ::shape_support::yield_now().await;
            self.0
        }
    }
}

pub fn exercise() -> String {
    let all = (sync(1), block_on(later("x", (0, 1))), elsewhere(2), S(3).owned(4));
    format!("{:?} {:?} {}", all, emitted(1, (2, 3)), block_on(S(5).emitted_method(6)))
}
