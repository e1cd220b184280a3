//! What is counted, by name.

use std::hint::black_box;

use memtrack::device::Stream;
use memtrack::scope::Scope;
use memtrack::{Buffer, CachingAllocator};
use memtrack_instructions::{Failure, callgrind};

use crate::workload::{Blocks, Rules};

/// Operations before the counted ones, after which memtrack's caches are warm and locks have their owner.
const WARMING: u64 = 1000;
/// Counted operations. A churn's differ; their mean is what counts.
pub(crate) const COUNTED: u64 = 5000;

/// Blocks of a cached pair.
const PAIR_BYTES: usize = 64 << 10;
/// Blocks of a churn.
const CHURN_COUNT: usize = 4096;
const RULES: [(&str, Rules); 3] =
    [("torch", Rules::Torch), ("expandable", Rules::Expandable), ("compact", Rules::Compact)];
const SCOPE_COUNTS: [usize; 3] = [0, 1, 3];

/// Few and many blocks, which growth is told from.
pub(crate) const COUNTS: [usize; 2] = [100, 10_000];
/// What is counted on request.
pub(crate) const MILLION: usize = 1_000_000;

/// What an operation may take among the many blocks, if it takes so much among the few: log 10,000 is twice log 100, so what
/// grows as a logarithm, and begins at nothing, doubles.
pub(crate) fn allowed(few: u64) -> u64 {
    2 * few
}

/// An operation among ever more blocks.
pub(crate) struct Growth {
    pub(crate) name: String,
    /// Few and many.
    pub(crate) counts: [usize; 2],
    /// The case with so many.
    pub(crate) case: Box<dyn Fn(usize) -> String>,
}

/// The names of the cases that have a limit each.
pub(crate) fn plain() -> Vec<String> {
    let mut names = Vec::new();
    for scopes in SCOPE_COUNTS {
        names.push(format!("pair torch {scopes} scopes"));
        names.push(format!("raw torch {scopes} scopes"));
    }
    names.extend(RULES.iter().skip(1).map(|(rules, _)| format!("pair {rules} 0 scopes")));
    names.extend(RULES.iter().map(|(rules, _)| format!("churn-live {rules} {CHURN_COUNT}")));
    names.push("scope torch 0 scopes".to_owned());
    names.push("scope torch 3 scopes".to_owned());
    names
}

/// The operations whose growth has a limit.
pub(crate) fn growths() -> Vec<Growth> {
    let operations = ["churn-live", "churn-cached", "pair-cached"];
    let of = |(rules, _): (&str, Rules)| {
        operations.map(|operation| {
            let name = format!("{operation} {rules}");
            let case = {
                let name = name.clone();
                Box::new(move |count| format!("{name} {count}"))
            };
            Growth { name, counts: COUNTS, case }
        })
    };
    let grown = |(operation, counts): (&str, [usize; 2])| {
        let name = format!("{operation} compact");
        let case = {
            let name = name.clone();
            Box::new(move |count| format!("{name} {count}"))
        };
        Growth { name, counts, case }
    };
    // All of few holes are looked at, and of many some.
    let compact = [("grow-created", COUNTS), ("grow-moved", [2000, 20_000])];
    RULES.into_iter().flat_map(of).chain(compact.into_iter().map(grown)).collect()
}

/// One process's part: prepares a case and marks its counted operations.
pub(crate) fn run(name: &str) -> Result<(), Failure> {
    let unknown = || format!("no case `{name}`");
    let words: Vec<&str> = name.split(' ').collect();
    let (&operation, words) = words.split_first().ok_or_else(unknown)?;
    let (&rules, words) = words.split_first().ok_or_else(unknown)?;
    let (_, rules) = RULES.into_iter().find(|(known, _)| *known == rules).ok_or_else(unknown)?;
    let count: usize = words.first().ok_or_else(unknown)?.parse()?;
    match operation {
        "pair" => in_scopes(rules, count, |allocator| {
            drop(black_box(Buffer::<u8>::uninit(allocator, black_box(PAIR_BYTES))));
        }),
        "raw" => in_scopes(rules, count, |allocator| {
            let address = allocator.allocate_raw(black_box(PAIR_BYTES as u64), Stream::DEFAULT);
            // The count would show a failure, which takes thousands of instructions.
            let _ = address.and_then(|address| allocator.free_raw(black_box(address)));
        }),
        "scope" => in_scopes(rules, count, |allocator| drop(black_box(Scope::open(allocator, "counted", None)))),
        "churn-live" => among(Blocks::live(rules, count), Blocks::replace_one),
        "churn-cached" => among(Blocks::cached(rules, count), Blocks::replace_one),
        "pair-cached" => among(Blocks::cached(rules, count), Blocks::pair),
        "grow-created" => among(Blocks::scattered(rules, count), Blocks::grow),
        "grow-moved" => among(Blocks::holes(rules, count), Blocks::go_to_and_fro),
        _ => return Err(unknown().into()),
    }
    Ok(())
}

/// Counts an operation on an allocator with one cached block, in so many open scopes.
fn in_scopes(rules: Rules, count: usize, operation: impl Fn(&CachingAllocator)) {
    let allocator = rules.allocator();
    drop(Buffer::<u8>::uninit(&allocator, PAIR_BYTES));
    let mut scopes: Vec<Scope> = (0..count).map(|_| Scope::open(&allocator, "around", None)).collect();
    repeat(|| operation(&allocator));
    while let Some(scope) = scopes.pop() {
        drop(scope);
    }
}

fn among(mut blocks: Blocks, operation: impl Fn(&mut Blocks)) {
    repeat(|| operation(&mut blocks));
    // Giving everything back is not counted, and takes longer than what is.
    std::mem::forget(blocks);
}

fn repeat(mut operation: impl FnMut()) {
    (0..WARMING).for_each(|_| operation());
    callgrind::counted(|| (0..COUNTED).for_each(|_| operation()));
}
