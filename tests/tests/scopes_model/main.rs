//! Scopes against a count that keeps nothing but a list of everything that happened, and goes through it for every question.
//!
//! Random programs open scopes that nest and overlap, on one device and over several, thread-bound and handed from thread to
//! thread; they recurse, close in any order, allocate and free wherever, reset what can be reset. Each record, and the totals
//! of all call sites after each step that asks for them, must be equal in every field.
//!
//! They run twice: with threads that are lists of entered scopes, and on real threads of which one works at a time.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

/// Unmeasured calls are counted per site, so tests that run at the same time have sites of their own.
macro_rules! sites {
    () => {{
        static SITES: [CallSite; 3] = [
            CallSite::new("first", module_path!(), file!(), line!()),
            CallSite::new("second", module_path!(), file!(), line!()),
            CallSite::new("third", module_path!(), file!(), line!()),
        ];
        &SITES
    }};
}

mod crew;
mod figures;
mod log;
mod mistakes;
mod program;
mod recount;
mod world;
mod wrong;

use memtrack::scope::CallSite;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestError, TestRunner};

use crew::Crew;
use program::program;
use world::run;

/// How many programs each of the two tests runs; `MEMTRACK_MODEL_PROGRAMS` names another number.
fn config() -> Config {
    let number = std::env::var("MEMTRACK_MODEL_PROGRAMS").ok().map(|text| text.parse().unwrap());
    Config { cases: number.unwrap_or(10_000), failure_persistence: None, max_shrink_iters: 20_000, ..Config::default() }
}

/// Runs random programs until one gives a difference, then shows it as small as it still does.
fn run_all(crew: &mut Crew, sites: &'static [CallSite; 3]) {
    let crew = std::cell::RefCell::new(crew);
    let outcome = TestRunner::new(config())
        .run(&program(), |program| run(&program, &mut crew.borrow_mut(), sites).map_err(TestCaseError::fail));
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(difference, program)) => panic!("{difference}\n{program:#?}"),
        Err(aborted) => panic!("{aborted}"),
    }
}

#[test]
fn every_figure_is_that_of_the_list_of_events() {
    run_all(&mut Crew::inline(), sites!());
}

#[test]
fn every_figure_is_that_of_the_list_of_events_on_real_threads() {
    run_all(&mut Crew::threads(program::THREAD_COUNT), sites!());
}
