//! shape: 11
//! title: an argument that comes to borrow a local
//! reworded: unused_assignments

#[track]
pub async fn later(mut a: &str) -> usize {
    let l = String::from("x");
    if a.len() > 2 {
        a = &l;
    }
    shape_support::yield_now().await;
    a.len()
}

#[track]
pub async fn overwritten(mut a: &str) -> usize {
    let l = String::from("xy");
    a = &l;
    shape_support::yield_now().await;
    a.len()
}

#[track(+err)]
pub async fn failing(mut a: &str) -> Result<usize, String> {
    let l = String::from("x");
    if a.len() > 2 {
        a = &l;
    }
    shape_support::yield_now().await;
    if a == "x" { Err(l) } else { Ok(a.len()) }
}

pub fn exercise() -> String {
    let later = shape_support::block_on(shape_support::send(later("long")));
    let failing = shape_support::block_on(failing("long"));
    format!("{} {} {:?}", later, shape_support::block_on(overwritten("long")), failing)
}
