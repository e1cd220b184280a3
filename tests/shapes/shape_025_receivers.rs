//! shape: 25
//! title: receivers of every kind
//! lost: clippy::boxed_local
//! lost: clippy::missing_const_for_fn

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

pub struct Receivers(u32);

impl Receivers {
    #[track]
    pub fn shared(&self) -> u32 {
        self.0
    }
    #[track]
    pub fn exclusive(&mut self) -> &mut u32 {
        &mut self.0
    }
    #[track]
    pub fn value(mut self) -> Self {
        self.0 += 1;
        self
    }
    #[track]
    pub fn pinned(self: Pin<&mut Self>) -> u32 {
        self.0
    }
    #[track]
    pub fn boxed(self: Box<Self>) -> u32 {
        self.0
    }
    #[track]
    pub fn counted(self: Rc<Self>) -> u32 {
        self.0
    }
    #[track]
    pub fn behind_arc(self: &Arc<Self>) -> u32 {
        self.0
    }
    #[track]
    pub fn parts(self, other: &u32) -> (u32, &u32) {
        let Self(inner) = self;
        (inner, other)
    }
    #[track(+err)]
    pub fn perhaps(&mut self) -> Result<&mut u32, String> {
        Ok(&mut self.0)
    }
    #[track(+err)]
    pub fn refused(self) -> Result<u32, Self> {
        Err(self)
    }
    #[track(+err)]
    pub fn refused_box(self: Box<Self>) -> Result<u32, Box<Self>> {
        if self.0 == 0 {
            return Ok(0);
        }
        Err(self)
    }
}

// calls: refused_box 2
pub fn exercise() -> String {
    let mut receiver = Receivers(1).value();
    *receiver.exclusive() += 1;
    let borrowed = (receiver.shared(), Pin::new(&mut receiver).pinned(), *receiver.perhaps().unwrap());
    let owned = (Box::new(Receivers(4)).boxed(), Rc::new(Receivers(5)).counted(), Arc::new(Receivers(6)).behind_arc());
    let refused = (Receivers(7).refused().map_err(|this| this.0), Box::new(Receivers(8)).refused_box().map_err(|this| this.0));
    format!("{:?} {:?} {:?} {:?} {:?}", borrowed, owned, receiver.parts(&7), refused, Box::new(Receivers(0)).refused_box().is_ok())
}
