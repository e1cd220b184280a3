//! shape: 182
//! title: the attribute on a module
//! lost: clippy::missing_const_for_fn
use shape_support::block_on;

#[track(+err)]
pub mod layers {
    use shape_support::yield_now;
    use std::fmt::Display;

    const WIDTH: u32 = 3;

    macro_rules! double {
        ($e:expr) => {
            $e * 2
        };
    }

    pub fn forward(x: u32) -> u32 {
        let unused = 1;
        double!(x) + WIDTH
    }

    pub async fn loaded(text: &str) -> Result<u32, std::num::ParseIntError> {
        yield_now().await;
        Ok(text.parse::<u32>()? + helper())
    }

    const fn helper() -> u32 {
        1
    }

    pub struct Layer(pub u32);

    impl Layer {
        pub fn owned(self) -> Result<u32, Self> {
            if self.0 == 0 { Err(self) } else { Ok(self.0) }
        }
    }

    impl Display for Layer {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "layer {}", self.0)
        }
    }

    pub mod inner {
        pub(crate) fn deep() -> &'static str {
            super::silent();
            "deep"
        }
    }

    fn silent() {}

    fn dead() {}
}

// calls: forward 1, loaded 2, Layer::owned 2, Layer::fmt 1, deep 1, silent 1
pub fn exercise() -> String {
    let loaded = (block_on(layers::loaded("4")), block_on(layers::loaded("x")));
    let owned = (layers::Layer(1).owned().ok(), layers::Layer(0).owned().is_err());
    format!("{} {:?} {:?} {} {}", layers::forward(1), loaded, owned, layers::Layer(5), layers::inner::deep())
}
