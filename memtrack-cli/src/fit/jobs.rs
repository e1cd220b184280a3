//! The searches of all recordings and settings, on several threads.
//!
//! Each search is one job, and what it finds depends on nothing else; so which thread takes which job changes no result.

use std::num::NonZero;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::answer::{FitError, fit};
use super::candidate::Candidate;
use super::options::{Card, FitOptions, Limited};
use super::program::Program;
use super::report::{PolicyReport, Report};
use crate::recording::Recording;

/// Settings under all their names, for one recording.
struct Row {
    names: Vec<String>,
    candidate: Result<Candidate, FitError>,
}

struct Part<'a> {
    path: &'a Path,
    history: Option<usize>,
    program: Program<'a>,
    rows: Vec<Row>,
}

/// One report for each recording of each file, in their order.
pub(super) fn reports(options: &FitOptions, card: Option<Card>) -> Vec<Report> {
    let limited = Limited { card, by: options.by };
    let files: Vec<_> = options.files.iter().map(|path| (path.as_path(), Recording::read(path))).collect();
    // By file: its recordings, or why there are none.
    let parts: Vec<Result<Vec<Part<'_>>, Box<Report>>> = files
        .iter()
        .map(|(path, read)| match read {
            Ok(recordings) => Ok(parts(path, recordings, options)),
            Err(error) => Err(Box::new(Report::unreadable(path, limited, error.to_string()))),
        })
        .collect();
    let jobs: Vec<(&Part<'_>, &Row)> =
        parts.iter().flatten().flatten().flat_map(|part| part.rows.iter().map(move |row| (part, row))).collect();
    let mut found = run_all(&jobs, options, |(part, row)| row_report(part, row, options, limited)).into_iter();
    let mut reports = Vec::new();
    for parts in parts {
        match parts {
            Err(unreadable) => reports.push(*unreadable),
            Ok(parts) => reports.extend(parts.iter().map(|part| {
                let policies = found.by_ref().take(part.rows.len()).collect();
                Report::new(part.path, part.history, &part.program, limited, policies)
            })),
        }
    }
    reports
}

fn parts<'a>(path: &'a Path, recordings: &'a [Recording], options: &FitOptions) -> Vec<Part<'a>> {
    let number = |index: usize| (recordings.len() > 1).then_some(index + 1);
    let part = |(index, recording): (usize, &'a Recording)| Part {
        path,
        history: number(index),
        program: Program::new(recording, options.serve_ooms),
        rows: rows(recording, options),
    };
    recordings.iter().enumerate().map(part).collect()
}

/// Settings that run the same are run once.
fn rows(recording: &Recording, options: &FitOptions) -> Vec<Row> {
    let named = options.policy.iter().map(|name| (name.to_string(), Candidate::named(*name, recording)));
    let given = options.config.iter().map(Candidate::given).map(|candidate| (candidate.name.clone(), Ok(candidate)));
    let mut rows: Vec<Row> = Vec::new();
    for (name, candidate) in named.chain(given) {
        let same = rows.iter_mut().find(|row| match (&row.candidate, &candidate) {
            (Ok(known), Ok(candidate)) => known.is_same(candidate),
            _ => row.names.contains(&name),
        });
        match same {
            Some(row) if row.names.contains(&name) => {}
            Some(row) => row.names.push(name),
            None => rows.push(Row { names: vec![name], candidate }),
        }
    }
    rows
}

fn row_report(part: &Part<'_>, row: &Row, options: &FitOptions, limited: Limited) -> PolicyReport {
    let names = row.names.clone();
    let candidate = match &row.candidate {
        Ok(candidate) => candidate,
        Err(error) => return PolicyReport::failed(names, error),
    };
    let card = limited.card;
    let asked_bytes = card.map(|card| card.available_bytes);
    match fit(&part.program, candidate, limited.device(), options.checks, asked_bytes) {
        Ok(answer) => PolicyReport::new(names, &answer, part.program.allocation_count(), card),
        Err(error) => PolicyReport::failed(names, &error),
    }
}

/// Does every job; the results in the order of the jobs.
fn run_all<J: Sync, R: Send>(jobs: &[J], options: &FitOptions, job: impl Fn(&J) -> R + Sync) -> Vec<R> {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let thread_count = options.threads.map_or(processors, usize::from).min(jobs.len());
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, R)>> = Mutex::new(Vec::new());
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(one) = jobs.get(index) else { break };
            let result = job(one);
            done.lock().unwrap_or_else(PoisonError::into_inner).push((index, result));
        }
    };
    thread::scope(|scope| {
        for _ in 1..thread_count {
            scope.spawn(work);
        }
        work();
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}
