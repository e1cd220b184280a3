//! Sizes and counts are read while the program is compiled; each that is wrong is told apart.
use memtrack::track_memory;

const TEXT: &str = "2GiB";
const NEGATIVE: i64 = -1;
const HUGE: u128 = 1;

#[track_memory(max_delta = "2G")]
fn ambiguous() {}

#[track_memory(max_peak = "-1")]
fn negative_text() {}

#[track_memory(max_peak = -1)]
fn negative_number() {}

#[track_memory(max_peak = "")]
fn empty() {}

#[track_memory(max_peak = "16EiB")]
fn unknown_unit() {}

#[track_memory(max_peak = "9000000TiB")]
fn too_large() {}

#[track_memory(max_peak = "8388608TiB")]
fn too_large_to_be_signed() {}

#[track_memory(max_allocs = 9223372036854775808)]
fn too_many() {}

#[track_memory(max_allocs = "3")]
fn count_as_text() {}

#[track_memory(leak_check = 1.5)]
fn fraction() {}

#[track_memory(min_delta)]
fn missing() {}

#[track_memory(max_peak = bytes)]
fn argument(bytes: u64) {
    drop(bytes);
}

#[track_memory(max_peak = 1 << 63)]
fn expression_that_is_too_large() {}

#[track_memory(max_peak = (1 - 2) * 3)]
fn negative_expression() {}

#[track_memory(leak_check(1))]
fn allowance_in_brackets() {}

#[track_memory(max_peak = f(2))]
fn not_constant() {}

fn f(count: u64) -> u64 {
    count
}

#[track_memory(max_peak = TEXT)]
fn text_constant() {}

#[track_memory(max_peak = NEGATIVE)]
fn negative_constant() {}

#[track_memory(max_peak = HUGE)]
fn wide_constant() {}

#[track_memory(max_peak = 2GiB, sample = 10k, max_allocs = 3u8, level = 4x)]
fn units_without_quotes() {}

fn main() {
    callers_still_compile();
}

fn callers_still_compile() {
    ambiguous();
    argument(1);
}
