//! shape: 171
//! title: temporaries of the last expression, with locks and cells
//! lost: clippy::needless_pass_by_value
//! lost: clippy::unwrap_in_result in err
use shape_support::{block_on, yield_now};
use std::cell::RefCell;
use std::sync::{Mutex, RwLock};

#[track]
pub fn locked(x: &Mutex<Vec<u32>>) -> usize {
    x.lock().unwrap().len()
}

#[track(+err)]
pub fn matched(x: &RwLock<Option<u32>>) -> Result<u32, String> {
    match *x.read().unwrap() {
        Some(n) if n > 1 => Ok(n),
        Some(n) => Err(n.to_string()),
        None => Err("none".to_owned()),
    }
}

#[track]
pub fn borrowed(x: &RefCell<Vec<String>>) -> String {
    x.borrow().first().cloned().unwrap_or_default()
}

#[track]
pub async fn later(x: &RefCell<Vec<String>>) -> usize {
    yield_now().await;
    x.borrow_mut().drain(..).map(|text| text.len()).sum()
}

#[track(+err)]
pub async fn later_matched(x: &Mutex<Option<u32>>) -> Result<u32, u32> {
    yield_now().await;
    if let Some(n) = x.lock().unwrap().take() { Ok(n) } else { Err(0) }
}

#[track]
pub fn argument_and_temporary(x: Mutex<String>, y: String) -> usize {
    let n = x.lock().unwrap().len() + y.len();
    n
}

pub struct Owner(Mutex<u32>);

impl Owner {
    #[track]
    pub fn into_inner(self) -> u32 {
        self.0.into_inner().unwrap()
    }
}

pub fn exercise() -> String {
    let cell = RefCell::new(vec!["ab".to_owned()]);
    let a = (locked(&Mutex::new(vec![1])), matched(&RwLock::new(Some(1))), borrowed(&cell), block_on(later(&cell)));
    let b = (block_on(later_matched(&Mutex::new(Some(2)))), argument_and_temporary(Mutex::new("a".to_owned()), "b".to_owned()));
    format!("{:?} {:?} {}", a, b, Owner(Mutex::new(3)).into_inner())
}
