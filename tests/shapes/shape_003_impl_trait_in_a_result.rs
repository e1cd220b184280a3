//! shape: 3
//! title: `impl Trait` inside a Result

#[track(+err)]
pub fn up_to(n: u32) -> Result<impl Iterator<Item = u32>, String> {
    if n == 9 {
        return Err("nine".to_owned());
    }
    Ok(0..n)
}

#[track(+err)]
pub async fn later_up_to(n: u32) -> Result<impl Iterator<Item = u32>, String> {
    if n == 9 {
        return Err("nine".to_owned());
    }
    shape_support::yield_now().await;
    Ok(0..n)
}

#[track(+err)]
pub fn both(n: u32) -> Result<(impl Iterator<Item = u32>, impl Fn(u32) -> u32), impl std::fmt::Debug> {
    if n == 9 {
        return Err("nine");
    }
    Ok((0..n, move |x| x + n))
}

// calls: up_to 2, later_up_to 2, both 2
pub fn exercise() -> String {
    let counts = (up_to(3).map(Iterator::count), up_to(9).map(Iterator::count));
    let later = |n| shape_support::block_on(later_up_to(n)).map(Iterator::count);
    let (iterator, add) = both(2).unwrap_or_else(|_| panic!());
    format!("{:?} {:?} {:?} {} {:?}", counts, later(4), later(9), iterator.map(add).sum::<u32>(), both(9).err())
}
