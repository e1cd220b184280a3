//! shape: 186
//! title: lints about what a body does with its arguments, in bodies that are moved into a closure too
//! lost: unconditional_recursion
//! lost: clippy::explicit_auto_deref
//! lost: clippy::missing_const_for_fn
//! lost: clippy::needless_pass_by_ref_mut
//! lost: clippy::only_used_in_recursion
use std::collections::HashMap;
use std::fmt::Debug;

#[track(max_peak = "1GiB")]
pub fn shown(text: &String) -> &dyn Debug {
    text
}

#[track(max_peak = "1GiB")]
pub fn shown_by_another_name(text: &String) -> &dyn Debug {
    let name = text;
    let other: &dyn Debug = name;
    other
}

#[track(max_peak = "1GiB")]
pub fn shown_early(text: &String) -> &dyn Debug {
    if text.is_empty() {
        return text;
    }
    &0
}

#[track(max_peak = "1GiB")]
pub fn shown_exclusively(values: &mut Vec<u8>) -> &mut dyn Debug {
    values
}

#[track(max_peak = "1GiB")]
pub fn only_read(values: &Vec<u8>, text: &String) -> usize {
    values.len() + text.capacity()
}

#[track(max_peak = "1GiB")]
pub fn nothing(_: (), x: u8) -> u8 {
    x
}

#[track]
pub fn nothing_inline(_: (), x: u8) -> u8 {
    x
}

#[track(+err)]
pub fn nothing_in_a_pattern((_, x): ((), u8), _: &()) -> Result<u8, u8> {
    if x == 0 { Err(x) } else { Ok(x) }
}

#[track(max_peak = "1GiB")]
pub fn pointer(p: *const u8) -> u8 {
    unsafe { *p }
}

#[track]
pub fn pointer_inline(p: *const u8) -> u8 {
    unsafe { *p }
}

#[track(max_peak = "1GiB")]
pub fn forever(n: u32) -> u32 {
    forever(n + 1)
}

#[track]
pub fn forever_inline(n: u32) -> u32 {
    forever_inline(n + 1)
}

#[track]
pub fn passed_on(n: u32, tag: String) -> u32 {
    if n == 0 { 0 } else { passed_on(n - 1, tag) }
}

#[track(max_peak = "1GiB")]
pub fn passed_on_in_a_closure(n: u32, tag: u32) -> u32 {
    if n == 0 { 0 } else { passed_on_in_a_closure(n - 1, tag) }
}

#[track(max_peak = "1GiB")]
pub fn hasher(_: u8, map: &HashMap<u8, u8>) -> usize {
    map.len()
}

#[track]
pub fn hasher_after_a_pattern((a, _): (String, u8), map: &HashMap<u8, u8>) -> usize {
    map.len() + a.len()
}

#[track]
pub fn dereferenced(b: &mut Box<u8>) -> &mut u8 {
    &mut **b
}

#[track]
pub fn dereferenced_within(b: &mut Box<u8>) -> u8 {
    fn same(x: &mut u8) -> &mut u8 {
        x
    }
    *same(&mut **b) += 1;
    **b
}

#[track(max_peak = "1GiB")]
fn not_changed(x: &mut u8) -> u8 {
    *x
}

#[track]
fn not_changed_inline(x: &mut u8) -> u8 {
    *x
}

#[track(max_peak = "1GiB")]
#[expect(unconditional_recursion, reason = "the shape")]
pub fn forever_as_expected(n: u32) -> u32 {
    forever_as_expected(n + 1)
}

#[track]
#[expect(clippy::only_used_in_recursion, reason = "the shape")]
pub fn passed_on_as_expected(n: u32, tag: String) -> u32 {
    if n == 0 { 0 } else { passed_on_as_expected(n - 1, tag) }
}

// calls: forever 0, forever_inline 0, forever_as_expected 0, passed_on 2, passed_on_as_expected 2, passed_on_in_a_closure 2
pub fn exercise() -> String {
    let a = format!("{:?} {:?} {:?}", shown(&"a".to_owned()), shown_early(&String::new()), shown_exclusively(&mut vec![1]));
    let b = (only_read(&vec![2], &String::new()), nothing((), 3), nothing_inline((), 4), nothing_in_a_pattern(((), 5), &()));
    let c = (pointer(&6), pointer_inline(&7), passed_on(1, String::new()), passed_on_in_a_closure(1, 2), passed_on_as_expected(1, String::new()));
    let d = (hasher(0, &HashMap::new()), hasher_after_a_pattern((String::new(), 1), &HashMap::new()), *dereferenced(&mut Box::new(8)));
    let e = (dereferenced_within(&mut Box::new(9)), not_changed(&mut 1), not_changed_inline(&mut 2));
    format!("{} {:?} {:?} {:?} {:?} {:?}", a, b, c, d, e, shown_by_another_name(&"b".to_owned()))
}
