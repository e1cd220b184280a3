//! shape: 116
//! title: constants and constant expressions in types
//! lost: clippy::missing_const_for_fn
use shape_support::{block_on, yield_now};

pub const N: usize = 2;

pub struct Table;

impl Table {
    pub const N: usize = 3;

    #[track]
    pub fn zeros(&self) -> [u8; Self::N] {
        [0; Self::N]
    }

    #[track(+err)]
    pub async fn later(&self, x: [u8; Self::N]) -> Result<[u8; { Self::N + 1 }], [u8; N]> {
        yield_now().await;
        if x[0] == 0 {
            return Err([x[0]; N]);
        }
        Ok([x[0]; Self::N + 1])
    }
}

pub struct Defaults<T = u8, const M: usize = { N * 2 }>([T; M]);

impl<T: Copy, const M: usize> Defaults<T, M> {
    #[track(+err)]
    pub fn first<const K: usize>(self) -> Result<[T; K], Self> {
        if K > M {
            return Err(self);
        }
        Ok([self.0[0]; K])
    }
}

#[track]
pub fn defaulted() -> Defaults {
    Defaults([1; 4])
}

#[track]
pub fn sum<const A: usize, const B: bool, const C: char>(x: [[u32; A]; 2]) -> u32 {
    let base = if B { C as u32 } else { 0 };
    x.iter().flatten().sum::<u32>() + base
}

// calls: later 2, first 2, defaulted 2
pub fn exercise() -> String {
    let later = (block_on(Table.later([0; 3])), block_on(Table.later([1; 3])));
    let first = (defaulted().first::<2>().ok(), defaulted().first::<9>().map_err(|this| this.0.len()));
    format!("{:?} {:?} {:?} {}", Table.zeros(), later, first, sum::<2, true, 'a'>([[1, 2], [3, 4]]))
}
