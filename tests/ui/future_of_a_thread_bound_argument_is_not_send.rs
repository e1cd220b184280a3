use memtrack::track_memory;
use std::rc::Rc;

#[track_memory]
async fn f(x: Rc<u32>) -> u32 {
    std::future::ready(()).await;
    *x
}

fn send(_: impl Send) {}

fn main() {
    send(f(Rc::new(1)));
}
