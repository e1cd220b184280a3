//! shape: 127
//! title: receivers in unusual spelling, and static methods
//! lost: clippy::boxed_local
//! lost: clippy::missing_const_for_fn
use shape_support::{block_on, yield_now};
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

pub struct R(u32);
pub type Alias = R;
pub type Boxed<T> = Box<T>;

impl R {
    #[track]
    pub fn shared(self: &Self) -> u32 {
        self.0
    }
    #[track]
    pub fn exclusive(self: &mut Self) -> u32 {
        self.0 += 1;
        self.0
    }
    #[track(+err)]
    pub fn value(mut self: Self) -> Result<u32, u32> {
        self.0 += 1;
        Err(self.0)
    }
    #[track(+err)]
    pub fn boxed(mut self: Box<Self>) -> Result<Box<Self>, u32> {
        self.0 += 1;
        Ok(self)
    }
    #[track]
    pub fn named(self: &R) -> u32 {
        self.0
    }
    #[track]
    pub fn alias(self: Alias) -> u32 {
        self.0
    }
    #[track]
    pub fn boxed_alias(self: Boxed<Self>) -> u32 {
        self.0
    }
    #[track]
    pub fn nested(self: Rc<Box<Self>>) -> u32 {
        self.0
    }
    #[track]
    pub fn pinned_box(self: Pin<Box<Self>>) -> u32 {
        self.0
    }
    #[track]
    pub fn lifetime<'a>(self: &'a Self, _other: &'a str) -> &'a u32 {
        &self.0
    }
    #[track]
    pub fn with_lifetime<'a>(&'a mut self) -> &'a mut Self {
        self.0 += 1;
        self
    }
    #[track(+err)]
    pub async fn counted(self: Arc<Self>, n: u32) -> Result<u32, Arc<Self>> {
        yield_now().await;
        if n == 0 {
            return Err(self);
        }
        Ok(self.0 + n)
    }
    #[track]
    pub async fn pinned(mut self: Pin<&mut Self>) -> u32 {
        self.0 += 1;
        yield_now().await;
        self.0
    }
    #[track]
    pub fn without(n: u32) -> Self {
        Self(n)
    }
}

impl Deref for R {
    type Target = u32;
    #[track]
    fn deref(&self) -> &u32 {
        &self.0
    }
}

impl DerefMut for R {
    #[track]
    fn deref_mut(&mut self) -> &mut u32 {
        &mut self.0
    }
}

// calls: counted 2
pub fn exercise() -> String {
    let mut r = R::without(1);
    let a = (r.shared(), r.exclusive(), r.named(), *r.lifetime("x"), r.with_lifetime().0);
    *r += 1;
    let b = (r.value(), Box::new(R(5)).boxed().map(|r| r.0), R(6).alias(), Box::new(R(7)).boxed_alias(), Rc::new(Box::new(R(8))).nested());
    let counted = |n| block_on(Arc::new(R(9)).counted(n)).map_err(|r| r.0);
    let c = (Box::pin(R(10)).pinned_box(), counted(0), counted(1), block_on(Pin::new(&mut R(11)).pinned()), *R(12));
    format!("{:?} {:?} {:?}", a, b, c)
}
