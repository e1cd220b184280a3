//! shape: 34
//! title: the future stays `Send`, and `'static`
use shape_support::{block_on, send, tokio, yield_now};
use std::cell::Cell;
use std::fmt::Display;
use std::rc::Rc;

#[track(+err, fields(n = n, text = %Rc::new(n)))]
pub async fn generic<T>(n: T, v: Vec<u8>) -> Result<u64, String>
where
    T: Send + Copy + Display + Into<u64> + shape_support::tracing::Value,
{
    yield_now().await;
    Ok(n.into() + v.len() as u64)
}

#[track]
pub async fn borrows(text: &str, n: &mut u32) -> usize {
    *n += 1;
    yield_now().await;
    text.len()
}

#[track]
pub async fn not_send(n: Rc<u32>) -> u32 {
    yield_now().await;
    *n
}

/// Its local is not `Send`, but gone before the future stops.
#[track]
pub async fn local_before_the_stop(n: u32) -> u32 {
    let n = {
        let cell = Rc::new(Cell::new(n));
        cell.set(cell.get() + 1);
        cell.get()
    };
    yield_now().await;
    n
}

#[track(+err)]
pub async fn spawned(text: String) -> Result<String, std::io::Error> {
    tokio::task::yield_now().await;
    Ok(text + "!")
}

fn is_static<T: 'static>(value: T) -> T {
    value
}

pub fn exercise() -> String {
    let mut n = 1;
    let generic = block_on(send(is_static(generic(1_u64, vec![1]))));
    let all = (block_on(send(borrows("text", &mut n))), block_on(not_send(Rc::new(1))), n);
    let local = block_on(send(is_static(local_before_the_stop(1))));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let spawned = runtime.block_on(async { tokio::spawn(spawned("a".to_owned())).await.unwrap() });
    format!("{:?} {:?} {} {:?}", generic, all, local, spawned.unwrap())
}
