//! shape: 125
//! title: the order of drops of arguments and locals
//! lost: clippy::needless_pass_by_value
use shape_support::{block_on, yield_now};
use std::cell::RefCell;

pub struct Noisy<'a>(&'static str, &'a RefCell<Vec<&'static str>>);

impl Drop for Noisy<'_> {
    fn drop(&mut self) {
        self.1.borrow_mut().push(self.0);
    }
}

impl Noisy<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }
}

pub type Log = RefCell<Vec<&'static str>>;

#[track]
pub fn sync<'a>(_a: Noisy<'a>, (b, _): (Noisy<'a>, Noisy<'a>), _: Noisy<'a>, log: &'a Log) -> usize {
    let _local = Noisy("local", log);
    let _ = Noisy("ignored", log);
    b.len()
}

#[track(+err)]
pub fn failing<'a>(a: Noisy<'a>, mut b: Noisy<'a>, log: &'a Log) -> Result<Noisy<'a>, Noisy<'a>> {
    let local = Noisy("local", log);
    if a.len() > 1 {
        return Err(local);
    }
    b.0 = "changed";
    Ok(b)
}

#[track(+err)]
pub async fn later<'a>(_a: Noisy<'a>, (b, _): (Noisy<'a>, Noisy<'a>), _: Noisy<'a>, log: &'a Log) -> Result<usize, usize> {
    let _local = Noisy("local", log);
    yield_now().await;
    let _second = Noisy("second", log);
    Err(b.len())
}

pub struct Owner<'a>(Noisy<'a>, Noisy<'a>);

impl<'a> Owner<'a> {
    #[track]
    pub fn taken(self, _more: Noisy<'a>) -> usize {
        let Self(first, _) = &self;
        first.len()
    }

    #[track(+err)]
    pub fn parted(self, log: &'a Log) -> Result<Noisy<'a>, ()> {
        let _local = Noisy("local", log);
        Ok(self.1)
    }
}

// calls: failing 2
pub fn exercise() -> String {
    let log = Log::default();
    let noisy = |name| Noisy(name, &log);
    sync(noisy("a"), (noisy("b"), noisy("rest")), noisy("c"), &log);
    log.borrow_mut().push("|");
    let _ = failing(noisy("a"), noisy("b"), &log).is_ok();
    log.borrow_mut().push("|");
    let _ = failing(noisy("long"), noisy("b"), &log).is_ok();
    log.borrow_mut().push("|");
    let _ = block_on(later(noisy("a"), (noisy("b"), noisy("rest")), noisy("c"), &log));
    log.borrow_mut().push("|");
    Owner(noisy("x"), noisy("y")).taken(noisy("z"));
    log.borrow_mut().push("|");
    let _ = Owner(noisy("x"), noisy("y")).parted(&log).is_ok();
    let text = log.borrow().join(" ");
    text
}
