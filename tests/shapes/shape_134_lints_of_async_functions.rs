//! shape: 134
//! title: lints about futures
//! lost: clippy::manual_async_fn
//! lost: clippy::unused_async
use shape_support::{block_on, yield_now};
use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::sync::Mutex;

#[track]
pub async fn not_send(x: Rc<u32>) -> u32 {
    yield_now().await;
    *x
}

#[track(+err)]
pub async fn not_send_local(x: u32) -> Result<u32, u32> {
    let cell = Rc::new(x);
    yield_now().await;
    Ok(*cell)
}

#[track]
pub async fn lock_held(x: &Mutex<u32>) -> u32 {
    let guard = x.lock().unwrap();
    yield_now().await;
    *guard
}

#[track]
pub async fn cell_held(x: &RefCell<u32>) -> u32 {
    let guard = x.borrow_mut();
    yield_now().await;
    *guard
}

#[track]
pub async fn without_await(x: u32) -> u32 {
    x
}

#[track(+err)]
pub async fn awaits_in_a_block_only(x: u32) -> Result<u32, u32> {
    let block = async move {
        yield_now().await;
        x
    };
    Ok(block_on(block))
}

#[track]
pub async fn ignores_a_future(x: u32) -> u32 {
    without_await(x);
    let _ = without_await(x);
    let unused = without_await(x);
    x
}

#[track]
pub fn could_be_async(x: u32) -> impl Future<Output = u32> {
    async move { x }
}

#[track]
pub fn could_be_async_too<'a>(x: &'a u32) -> impl Future<Output = u32> + 'a {
    async move { *x }
}

#[track]
pub async fn yields_a_future(x: u32) -> impl Future<Output = u32> {
    yield_now().await;
    without_await(x)
}

#[track]
pub async fn redundant_block(x: u32) -> u32 {
    let value = async { without_await(x).await }.await;
    async { value }.await
}

#[track]
pub async fn unit_later() {
    let () = yield_now().await;
    let nothing = yield_now().await;
    nothing
}

pub struct S;

impl S {
    #[track]
    pub async fn unused_self(&self) -> u32 {
        yield_now().await;
        1
    }

    #[track]
    pub async fn into_number(&self) -> u32 {
        yield_now().await;
        2
    }
}

// calls: without_await 3
pub fn exercise() -> String {
    block_on(unit_later());
    let a = (block_on(not_send(Rc::new(1))), block_on(not_send_local(2)), block_on(lock_held(&Mutex::new(3))), block_on(cell_held(&RefCell::new(4))));
    let b = (block_on(without_await(5)), block_on(awaits_in_a_block_only(6)), block_on(ignores_a_future(7)));
    let c = (block_on(could_be_async(8)), block_on(could_be_async_too(&9)), block_on(block_on(yields_a_future(10))), block_on(redundant_block(11)));
    format!("{:?} {:?} {:?} {} {}", a, b, c, block_on(S.unused_self()), block_on(S.into_number()))
}
