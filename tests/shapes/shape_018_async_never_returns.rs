//! shape: 18
//! title: `async fn -> !`
//! without err: a function that never returns has no `Result`

use shape_support::{block_on, panic_of, poll_once, send, yield_now};

#[track]
pub async fn yields() -> ! {
    loop {
        yield_now().await;
    }
}

#[track]
pub async fn panics(n: u32) -> ! {
    yield_now().await;
    panic!("{}", n)
}

#[track]
pub async fn counts(mut n: u32) -> ! {
    loop {
        n += 1;
        yield_now().await;
        assert!(n < 4, "counted to {}", n);
    }
}

pub fn exercise() -> String {
    let mut pending = 0;
    {
        let mut future = Box::pin(send(yields()));
        for _ in 0..3 {
            if poll_once(future.as_mut()).is_pending() {
                pending += 1;
            }
        }
    }
    let panics = (panic_of(|| -> () { block_on(panics(1)) }), panic_of(|| -> () { block_on(counts(1)) }));
    format!("{} {:?}", pending, panics)
}
