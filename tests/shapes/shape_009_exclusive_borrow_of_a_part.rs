//! shape: 9
//! title: an exclusive borrow of a part of an argument
//! lost: clippy::missing_const_for_fn

#[track(+err)]
pub fn first(x: &mut Vec<u8>) -> Result<&mut u8, String> {
    x.first_mut().ok_or_else(|| "empty".to_owned())
}

#[track(+err)]
pub async fn pushed(x: &mut Vec<u8>) -> Result<&mut u8, String> {
    x.push(7);
    shape_support::yield_now().await;
    x.last_mut().ok_or_else(|| "empty".to_owned())
}

pub struct Pair {
    left: Vec<u8>,
    right: Vec<u8>,
}

impl Pair {
    #[track(+err)]
    pub fn longest(&mut self) -> Result<&mut Vec<u8>, ()> {
        let Self { left, right } = self;
        if left.is_empty() && right.is_empty() {
            return Err(());
        }
        Ok(if left.len() > right.len() { left } else { right })
    }
}

// calls: first 2
pub fn exercise() -> String {
    let mut v = vec![1];
    *first(&mut v).unwrap() += 1;
    *shape_support::block_on(pushed(&mut v)).unwrap() += 1;
    let mut pair = Pair { left: v, right: Vec::new() };
    pair.longest().unwrap().push(9);
    let last = first(&mut pair.right).cloned();
    format!("{:?} {:?} {:?}", pair.left, pair.right, last)
}
