//! shape: 25
//! title: receivers of every kind, async
//! lost: clippy::unused_async

use shape_support::{block_on, send, yield_now};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

pub struct Receivers(u32);

impl Receivers {
    #[track]
    pub async fn shared(&self) -> u32 {
        self.0
    }
    #[track]
    pub async fn exclusive(&mut self) -> &mut u32 {
        yield_now().await;
        &mut self.0
    }
    #[track]
    pub async fn value(mut self) -> Self {
        self.0 += 1;
        yield_now().await;
        self
    }
    #[track]
    pub async fn pinned(self: Pin<&mut Self>) -> u32 {
        self.0
    }
    #[track]
    pub async fn boxed(self: Box<Self>) -> u32 {
        self.0
    }
    #[track]
    pub async fn counted(self: Rc<Self>) -> u32 {
        self.0
    }
    #[track]
    pub async fn behind_arc(self: &Arc<Self>) -> u32 {
        self.0
    }
    #[track(+err)]
    pub async fn perhaps(&mut self) -> Result<&mut u32, String> {
        yield_now().await;
        Ok(&mut self.0)
    }
    #[track(+err)]
    pub async fn refused(self) -> Result<u32, Self> {
        yield_now().await;
        Err(self)
    }
}

pub fn exercise() -> String {
    let mut receiver = block_on(send(Receivers(1).value()));
    *block_on(send(receiver.exclusive())) += 1;
    let borrowed = (block_on(send(receiver.shared())), block_on(Pin::new(&mut receiver).pinned()), *block_on(receiver.perhaps()).unwrap());
    let owned = (block_on(send(Box::new(Receivers(4)).boxed())), block_on(Rc::new(Receivers(5)).counted()));
    let arc = Arc::new(Receivers(6));
    let refused = block_on(Receivers(7).refused()).map_err(|this| this.0);
    format!("{:?} {:?} {:?} {:?}", borrowed, owned, block_on(send(arc.behind_arc())), refused)
}
