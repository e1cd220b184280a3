//! shape: 101
//! title: associated types and generic associated types in results
use shape_support::{block_on, yield_now};

pub trait Lend {
    type Item<'a>
    where
        Self: 'a;
    type Error;
    const LENGTH: usize;

    fn lend<'a>(&'a mut self) -> Result<Self::Item<'a>, Self::Error>;
    fn shared(&self) -> [u8; 2];
}

pub struct Window(Vec<u8>);

impl Lend for Window {
    type Item<'a> = &'a mut [u8];
    type Error = String;
    const LENGTH: usize = 2;

    #[track(+err)]
    fn lend<'a>(&'a mut self) -> Result<Self::Item<'a>, Self::Error> {
        if self.0.is_empty() {
            return Err("empty".to_owned());
        }
        Ok(&mut self.0[..1])
    }

    #[track]
    fn shared(&self) -> [u8; 2] {
        [self.0[0]; Self::LENGTH]
    }
}

#[track(+err)]
pub fn through<L: Lend>(mut lend: L) -> Result<usize, L::Error>
where
    for<'a> L::Item<'a>: AsRef<[u8]>,
{
    let item = lend.lend()?;
    Ok(item.as_ref().len())
}

#[track]
pub async fn next<I: Iterator>(mut iterator: I) -> Option<<I as Iterator>::Item> {
    yield_now().await;
    iterator.next()
}

#[track]
pub fn collected<I>(iterator: I) -> Vec<I::Item>
where
    I: IntoIterator,
    I::Item: Clone,
{
    iterator.into_iter().collect()
}

// calls: lend 3, through 2
pub fn exercise() -> String {
    let mut window = Window(vec![1, 2]);
    window.lend().unwrap()[0] = 7;
    let all = (window.shared(), through(window), through(Window(vec![])));
    format!("{:?} {:?} {:?}", all, block_on(next(vec![1].into_iter())), collected(vec!["a"]))
}
