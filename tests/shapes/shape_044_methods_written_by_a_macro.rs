//! shape: 44
//! title: methods written by `macro_rules!`
//! lost: clippy::boxed_local
//! lost: clippy::missing_const_for_fn
use shape_support::{block_on, yield_now};

pub struct Receivers(u32);

macro_rules! methods {
    ($self:ident, $name:ident, $ty:ty, $body:expr) => {
        impl Receivers {
            #[track]
            pub fn $name(&$self) -> $ty { $body }
        }
    };
    (owned $self:ident, $name:ident, $ty:ty, $body:expr) => {
        impl Receivers {
            #[track(+err)]
            pub fn $name($self, extra: $ty) -> Result<$ty, String> { Ok($body + extra) }
        }
    };
    (later $self:ident, $name:ident, $ty:ty, $body:expr) => {
        impl Receivers {
            #[track(+err)]
            pub async fn $name(&mut $self, extra: $ty) -> Result<$ty, String> {
                yield_now().await;
                $self.0 += extra;
                Ok($body)
            }
        }
    };
    (pinned $self:ident, $name:ident, $receiver:ty) => {
        impl Receivers {
            #[track]
            pub fn $name($self: $receiver) -> u32 { $self.0 }
        }
    };
}

methods!(self, shared, u32, self.0 + 1);
methods!(owned self, owned, u32, self.0 + 1);
methods!(later self, later, u32, self.0 + 1);
methods!(pinned self, boxed, Box<Self>);
methods!(pinned self, borrowed, &Box<Self>);

// calls: shared 1, owned 1, later 1, boxed 1, borrowed 1
pub fn exercise() -> String {
    let boxed = Box::new(Receivers(4));
    let all = (Receivers(1).shared(), Receivers(1).owned(2), block_on(Receivers(1).later(3)), boxed.borrowed(), boxed.boxed());
    format!("{:?}", all)
}
