//! Calling the shapes, and the records of their calls.

use crate::device;
use memtrack_tests::spans::{SpanLog, Spans};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// How often each name is called: a span's name and the number of its calls.
pub type Expected = &'static [(&'static str, usize)];

/// One shape, as it was compiled in one form.
pub struct Shape {
    /// The name of its file.
    pub name: &'static str,
    /// Calls its functions and says what they returned.
    pub exercise: fn() -> String,
    /// The calls of annotated functions that it makes.
    pub expected: Expected,
}

/// What of memtrack a form leaves to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Nothing: no function is annotated.
    Plain,
    /// The functions measure the current allocator.
    Current,
    /// The functions say which allocator they measure, and no other could be meant.
    Device,
}

/// The recorder of the whole process: shapes may start threads.
pub(crate) fn spans() -> &'static Spans {
    static SPANS: LazyLock<Spans> = LazyLock::new(|| {
        let spans = Spans::default();
        if let Err(error) = tracing::subscriber::set_global_default(spans.clone()) {
            panic!("the recorder cannot be installed: {error}");
        }
        spans
    });
    &SPANS
}

/// Calls each shape, and writes for each a line with what it returned and one for each problem.
pub fn run(form: Form, shapes: &[Shape]) {
    // Some shapes panic on purpose.
    std::panic::set_hook(Box::new(|_| {}));
    for shape in shapes {
        let mut result = Err(String::new());
        let found = problems_of(form, shape.expected, || {
            result = std::panic::catch_unwind(shape.exercise).map_err(|payload| crate::panic_of(|| resume(payload)));
        });
        match result {
            Ok(returned) => println!("{}\treturned\t{}", shape.name, returned.escape_debug()),
            Err(panic) => println!("{}\tproblem\tpanicked: {}", shape.name, panic.escape_debug()),
        }
        for problem in found {
            println!("{}\tproblem\t{}", shape.name, problem.escape_debug());
        }
    }
}

fn resume(payload: Box<dyn std::any::Any + Send>) {
    std::panic::resume_unwind(payload)
}

/// Runs `work`, and says what is wrong with the records of the calls it made.
fn problems_of(form: Form, expected: Expected, work: impl FnOnce()) -> Vec<String> {
    let spans = spans();
    let (first, told) = (spans.all().len(), spans.journal().len());
    let current = device().make_current();
    // So that `mem.phase` has a value in every form.
    let around = memtrack::phase("around");
    if form == Form::Device {
        drop(current);
        work();
    } else {
        work();
        drop(current);
    }
    drop(around);
    problems(form, expected, &spans.all()[first..], &spans.journal()[told..])
}

/// What is wrong with the records: each call must have left one span, closed once, with each of memtrack's fields
/// recorded once.
pub(crate) fn problems(form: Form, expected: Expected, spans: &[SpanLog], journal: &[String]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    if form != Form::Plain {
        for (name, count) in expected {
            counts.entry(name).or_default().0 += count;
        }
    }
    for span in spans.iter().filter(|span| span.declared.contains(&"mem.outcome")) {
        counts.entry(span.name).or_default().1 += 1;
        for field in span.declared.iter().filter(|field| field.starts_with("mem.")) {
            let values = std::iter::once(&span.at_creation).chain(&span.records);
            match values.filter(|values| values.contains_key(field)).count() {
                1 => {}
                times => problems.push(format!("{field} of `{}` was recorded {times} times", span.name)),
            }
        }
    }
    for (name, (wanted, found)) in counts {
        if wanted != found {
            problems.push(format!("{found} spans named `{name}`, where {wanted} were expected"));
        }
        // Others, of `#[instrument]`, may have the name too.
        let all = spans.iter().filter(|span| span.name == name).count();
        let closed = journal.iter().filter(|line| line.strip_prefix("close ") == Some(name)).count();
        if closed != all {
            problems.push(format!("{closed} of {all} spans named `{name}` were closed"));
        }
    }
    problems
}
