//! shape: 153
//! title: names in other scripts, literals of every kind
//! lost: clippy::missing_const_for_fn
use shape_support::{block_on, yield_now};

#[track(+err)]
pub fn größe(länge: u32, β: &str) -> Result<u32, String> {
    let 数 = länge + β.len() as u32;
    if 数 == 0 { Err("零".to_owned()) } else { Ok(数) }
}

#[track]
pub async fn literals(n: u8) -> String {
    yield_now().await;
    let text = r#"raw "text""#;
    let bytes = b"bytes\n";
    let character = '\u{1F980}';
    let float = 1e3_f32;
    let long = "a long \
        string";
    format!("{text} {bytes:?} {character} {float:.1} {long} {n:>3} {{}} {0}", n)
}

#[track]
pub fn a_function_with_a_name_that_is_longer_than_one_line_of_most_terminals_and_still_goes_on_a_little_bit_more() -> u32 {
    1
}

#[track(target = "a b::c")]
pub fn named() {}

pub fn exercise() -> String {
    named();
    let long = a_function_with_a_name_that_is_longer_than_one_line_of_most_terminals_and_still_goes_on_a_little_bit_more();
    format!("{:?} {} {}", größe(1, "β"), block_on(literals(7)), long)
}
