//! shape: 114
//! title: `#[expect]` and `#[allow]` on the function, its statements and its parameters
//! lost: clippy::allow_attributes_without_reason
//! lost: clippy::missing_const_for_fn
use shape_support::{block_on, yield_now};

#[track]
#[expect(unused_variables, reason = "the shape")]
pub fn on_the_function(x: u32) {}

#[expect(unused_mut, clippy::needless_pass_by_value)]
#[track(+err)]
pub fn above(mut x: u32, y: Vec<u32>) -> Result<usize, u32> {
    Ok(y.len())
}

#[track]
pub fn on_statements(n: u32) -> u32 {
    #[expect(unused_variables)]
    let x = 1;
    #[expect(clippy::redundant_clone)]
    let text = String::from("a").clone();
    #[expect(clippy::print_stdout)]
    if n > 100 {
        println!("{}", text);
    }
    #[expect(unused_must_use)]
    {
        n + 1;
    }
    #[allow(clippy::needless_return)]
    return n;
}

#[track(+err)]
#[expect(clippy::unused_async)]
pub async fn unused_async(#[expect(unused_variables)] n: u32) -> Result<u32, u32> {
    Ok(1)
}

#[track(+err)]
#[expect(unreachable_code, unused_variables)]
pub async fn unreachable(n: u32) -> Result<u32, u32> {
    yield_now().await;
    return Err(n);
    let m = 1;
    Ok(m)
}

#[track]
#[expect(dead_code)]
fn dead() {}

#[track]
#[expect(clippy::too_many_arguments, clippy::many_single_char_names)]
pub fn many(a: u8, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8, h: u8) -> u8 {
    a + b + c + d + e + f + g + h
}

#[track]
#[expect(clippy::missing_const_for_fn, clippy::must_use_candidate)]
pub fn candidate() -> u8 {
    1
}

// calls: dead 0
pub fn exercise() -> String {
    on_the_function(1);
    let all = (above(1, vec![]), on_statements(2), many(1, 2, 3, 4, 5, 6, 7, 8), candidate());
    format!("{:?} {:?} {:?}", all, block_on(unused_async(1)), block_on(unreachable(2)))
}
