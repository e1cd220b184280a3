//! shape: 35
//! title: arguments and results that implement nothing
//! lost: clippy::missing_const_for_fn
use shape_support::{Opaque, block_on, yield_now};

pub struct Nothing<T>(T);

#[track]
pub fn sync(n: Opaque) -> Nothing<Opaque> {
    Nothing(n)
}

#[track(+err)]
pub async fn later<T>(n: T, (m, _): (Opaque, T)) -> Result<T, Opaque> {
    yield_now().await;
    if m.0 == 0 { Ok(n) } else { Err(m) }
}

#[track(+err)]
pub fn failing(n: Opaque, f: fn(Opaque) -> Opaque) -> Result<Nothing<Opaque>, Opaque> {
    Err(f(n))
}

pub fn exercise() -> String {
    let later = block_on(later(Opaque(1), (Opaque(0), Opaque(2)))).map(|it| it.0).map_err(|it| it.0);
    let failing = failing(Opaque(3), |it| it).map(|it| (it.0).0).map_err(|it| it.0);
    format!("{} {:?} {:?}", (sync(Opaque(1)).0).0, later, failing)
}
