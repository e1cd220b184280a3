//! shape: 106
//! title: `let … else`, or-patterns and guards
//! lost: clippy::missing_const_for_fn
use shape_support::{block_on, yield_now};

#[track(+err)]
pub fn parsed(x: Option<&str>) -> Result<u32, String> {
    let Some(text) = x else {
        return Err("none".to_owned());
    };
    let Ok(n) = text.parse::<u32>() else { return Err(text.to_owned()) };
    Ok(n)
}

#[track(+err)]
pub async fn later(mut x: Vec<Option<u32>>) -> Result<u32, usize> {
    let mut sum = 0;
    loop {
        let Some(last) = x.pop() else { break };
        yield_now().await;
        let Some(n) = last else { continue };
        let (1 | 2 | 4..=9) = n else { return Err(x.len()) };
        sum += n;
    }
    Ok(sum)
}

#[track]
pub fn guards(x: &[i32]) -> &'static str {
    match x {
        [] => "empty",
        [n] if *n < 0 => return "negative",
        [first, .., last] if first == last => "same",
        [_, rest @ ..] => match rest.len() {
            0 => "one",
            _ => "many",
        },
    }
}

#[track]
pub fn either((Ok(n) | Err(n)): Result<u32, u32>) -> u32 {
    n
}

// calls: parsed 3, later 2, guards 4
pub fn exercise() -> String {
    let parsed = (parsed(None), parsed(Some("x")), parsed(Some("7")));
    let later = (block_on(later(vec![Some(1), None, Some(5)])), block_on(later(vec![Some(1), Some(3)])));
    let guards = (guards(&[]), guards(&[-1]), guards(&[1, 2, 1]), guards(&[1, 2, 3]));
    format!("{:?} {:?} {:?} {}", parsed, later, guards, either(Err(4)))
}
