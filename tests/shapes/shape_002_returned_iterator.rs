//! shape: 2
//! title: an iterator that borrows from an argument
//! without err: an `impl Trait` that is no `Result`; shape 3 has it inside of one

#[track]
pub fn named<'a>(v: &'a [u32]) -> impl Iterator<Item = u32> + 'a {
    v.iter().map(|x| x + 1)
}

#[track]
pub fn elided(v: &[u32]) -> impl Iterator<Item = &u32> + '_ {
    v.iter().filter(|x| **x > 1)
}

#[track]
pub async fn later<'a>(v: &'a [u32]) -> impl Iterator<Item = u32> + 'a {
    shape_support::yield_now().await;
    v.iter().copied()
}

pub fn exercise() -> String {
    let v = vec![1, 2];
    let sum: u32 = named(&v).chain(shape_support::block_on(shape_support::send(later(&v)))).sum();
    format!("{} {:?}", sum, elided(&v).collect::<Vec<_>>())
}
