//! shape: 128
//! title: more patterns: by reference, nested, mutable, bound as a whole
//! lost: clippy::missing_const_for_fn
use shape_support::{block_on, yield_now};

pub struct Point {
    x: u32,
    y: u32,
}
pub struct Wrapped(pub String, pub Vec<u32>);
pub enum Only {
    One(u32, String),
}

#[track]
pub fn references(&(a, ref b): &(u32, String), &mut ref mut c: &mut u32, [ref d, .., e]: [String; 3], (mut f, g): (u32, &mut u32)) -> usize {
    *c += 1;
    f += *c;
    *g += f;
    a as usize + b.len() + d.len() + e.len()
}

#[track(+err)]
pub fn structs(Point { x, mut y }: Point, Wrapped(ref text, mut numbers): Wrapped, Only::One(n, _): Only) -> Result<usize, Vec<u32>> {
    y += x;
    numbers.push(y + n);
    if text.is_empty() { Err(numbers) } else { Ok(numbers.len()) }
}

#[track(+err)]
pub async fn later(whole @ (a, _): (u32, u32), mut list @ [first, ..]: [u32; 2], Wrapped(text, _): Wrapped, (): ()) -> Result<String, (u32, u32)> {
    list[1] += first + a;
    yield_now().await;
    if text.is_empty() {
        return Err(whole);
    }
    Ok(text + &list[1].to_string())
}

#[track]
pub fn ignored(_: Wrapped, (_, _): (u32, String), Point { .. }: Point, [_, ..]: [u32; 2], _unused: Wrapped, &_: &u32) {}

#[track(+err)]
pub fn parenthesized((a): u32, ((b, c), (d)): ((u32, u32), u32)) -> Result<u32, ()> {
    Ok(a + b + c + d)
}

// calls: structs 2, later 2
pub fn exercise() -> String {
    let (mut c, mut g) = (1, 2);
    let s = |text: &str| text.to_owned();
    let references = references(&(1, s("b")), &mut c, [s("d"), s("x"), s("e")], (3, &mut g));
    let wrapped = |text: &str| Wrapped(s(text), vec![1]);
    let structs = (structs(Point { x: 1, y: 2 }, wrapped(""), Only::One(3, s(""))), structs(Point { x: 1, y: 2 }, wrapped("a"), Only::One(3, s(""))));
    let later = (block_on(later((1, 2), [3, 4], wrapped("a"), ())), block_on(later((1, 2), [3, 4], wrapped(""), ())));
    ignored(wrapped(""), (1, s("")), Point { x: 1, y: 2 }, [1, 2], wrapped(""), &1);
    format!("{} {} {} {:?} {:?} {:?}", references, c, g, structs, later, parenthesized(1, ((2, 3), 4)))
}
