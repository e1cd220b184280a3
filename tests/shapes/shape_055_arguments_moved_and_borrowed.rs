//! shape: 55
//! title: owned arguments moved out, borrowed ones used after the call
//! lost: clippy::missing_const_for_fn
use shape_support::{block_on, yield_now};

#[track]
pub fn moved(v: Vec<u32>) -> Vec<u32> {
    v
}

#[track]
pub fn pushed(v: &mut Vec<u32>) -> &mut u32 {
    v.push(1);
    v.last_mut().unwrap()
}

#[track(+err)]
pub async fn moved_later(v: Vec<u32>, drop_it: bool) -> Result<Vec<u32>, ()> {
    if drop_it {
        drop(v);
        return Err(());
    }
    yield_now().await;
    Ok(v)
}

#[track(+err)]
pub async fn pushed_later(v: &mut Vec<u32>) -> Result<&mut u32, ()> {
    v.push(1);
    yield_now().await;
    v.last_mut().ok_or(())
}

#[track]
pub fn partly((a, b): (Vec<u32>, Vec<u32>), c: (Vec<u32>, Vec<u32>)) -> (Vec<u32>, Vec<u32>) {
    let (d, _) = c;
    if a.is_empty() { (b, d) } else { (a, c.1) }
}

#[track]
pub fn reborrows(v: &mut Vec<u32>, f: &mut dyn FnMut(&mut Vec<u32>)) -> usize {
    f(v);
    f(&mut *v);
    let w = &mut *v;
    f(w);
    v.len()
}

// calls: moved_later 2
pub fn exercise() -> String {
    let mut v = moved(vec![]);
    *pushed(&mut v) += 1;
    *block_on(pushed_later(&mut v)).unwrap() += 2;
    let later = (block_on(moved_later(v.clone(), false)), block_on(moved_later(v.clone(), true)));
    let count = reborrows(&mut v, &mut |v| v.push(7));
    format!("{:?} {:?} {} {:?}", v, later, count, partly((vec![], vec![1]), (vec![2], vec![3])))
}
