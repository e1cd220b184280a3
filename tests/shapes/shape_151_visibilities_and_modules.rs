//! shape: 151
//! title: visibilities of every kind, in nested modules
//! lost: clippy::missing_const_for_fn
//! lost: clippy::needless_pass_by_value
use shape_support::{block_on, yield_now};

mod outer {
    #[track]
    pub(super) fn parent() -> u32 {
        inner::in_path() + inner::crate_wide()
    }

    pub mod inner {
        #[track]
        pub(in crate::outer) fn in_path() -> u32 {
            self::own()
        }

        #[track]
        pub(crate) fn crate_wide() -> u32 {
            super::super::private()
        }

        #[track]
        pub(self) fn own() -> u32 {
            3
        }

        #[track(+err)]
        pub async fn public<T>(x: T) -> Result<T, super::super::Failure> {
            crate::yield_now().await;
            Ok(x)
        }

        pub struct Hidden(pub(super) u32);

        impl Hidden {
            #[track]
            pub(in super::super) fn new() -> Self {
                Self(4)
            }
        }
    }

    #[track]
    pub fn reads(hidden: inner::Hidden) -> u32 {
        hidden.0
    }
}

#[derive(Debug)]
pub struct Failure;

#[track]
fn private() -> u32 {
    2
}

pub use outer::inner::public as renamed;

pub fn exercise() -> String {
    format!("{} {} {:?}", outer::parent(), outer::reads(outer::inner::Hidden::new()), block_on(renamed(1)).unwrap())
}
