//! Who runs the steps: real threads, of which one works at a time, or one thread that plays all.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use memtrack::Buffer;
use memtrack::phase::{Phase, Step};
use memtrack::scope::{
    Attached, AttachedDevices, DevicesRecord, DevicesScope, OpenDevicesScope, OpenScope, Outcome, Scope, ScopeRecord,
};

use super::log::ScopeId;

/// A scope that belongs to no thread.
pub(crate) enum Open {
    One(OpenScope),
    Several(OpenDevicesScope),
}

enum AttachedTo<'scope> {
    One { _guard: Attached<'scope> },
    Several { _guard: AttachedDevices<'scope> },
}

impl Open {
    fn attach(&self) -> AttachedTo<'_> {
        match self {
            Self::One(scope) => AttachedTo::One { _guard: scope.attach() },
            Self::Several(scope) => AttachedTo::Several { _guard: scope.attach() },
        }
    }

    pub(crate) fn close(self, outcome: Outcome) -> Done {
        match self {
            Self::One(scope) => Done::Closed(scope.close(outcome)),
            Self::Several(scope) => Done::SeveralClosed(scope.close(outcome)),
        }
    }
}

/// A scope that belongs to the thread that opened it.
pub(crate) enum Guard {
    One(Scope),
    Several(DevicesScope),
    Phase(Phase),
    Step(Step),
}

impl Guard {
    pub(crate) fn close(self, outcome: Outcome) -> Done {
        match self {
            Self::One(scope) => Done::Closed(scope.close(outcome)),
            Self::Several(scope) => Done::SeveralClosed(scope.close(outcome)),
            Self::Phase(phase) => Done::Closed(phase.finish().unwrap()),
            Self::Step(step) => Done::Closed(step.finish().unwrap()),
        }
    }
}

/// The guards that a thread has.
pub(crate) type Guards = BTreeMap<ScopeId, Guard>;

/// What came of a job.
pub(crate) enum Done {
    Nothing,
    Opened(Open),
    Allocated(Option<Buffer<u8>>),
    Closed(ScopeRecord),
    SeveralClosed(DevicesRecord),
}

type Job = Box<dyn FnOnce(&mut Guards) -> Done + Send>;

pub(crate) struct Worker {
    jobs: Sender<Job>,
    done: Receiver<Done>,
}

pub(crate) enum Crew {
    Inline(Guards),
    Threads(Vec<Worker>),
}

impl Crew {
    pub(crate) fn inline() -> Self {
        Self::Inline(Guards::new())
    }

    pub(crate) fn threads(count: usize) -> Self {
        let worker = |_| {
            let (jobs, receiver) = channel::<Job>();
            let (sender, done) = channel();
            // They end with their channels.
            thread::spawn(move || {
                let mut guards = Guards::new();
                for job in receiver {
                    if sender.send(job(&mut guards)).is_err() {
                        break;
                    }
                }
            });
            Worker { jobs, done }
        };
        Self::Threads((0..count).map(worker).collect())
    }

    /// Whether a thread can have scopes that belong to it.
    pub(crate) fn has_guards(&self) -> bool {
        matches!(self, Self::Threads(_))
    }

    /// Lets a thread, attached to these scopes, do something; waits until it has.
    pub(crate) fn run(
        &mut self,
        thread: usize,
        attached: Vec<Arc<Open>>,
        job: impl FnOnce(&mut Guards) -> Done + Send + 'static,
    ) -> Done {
        let inside = move |guards: &mut Guards| {
            let entered: Vec<_> = attached.iter().map(|scope| scope.attach()).collect();
            let done = job(guards);
            drop(entered);
            // Before the answer: whoever gets it may close the scopes.
            drop(attached);
            done
        };
        match self {
            Self::Inline(guards) => inside(guards),
            Self::Threads(workers) => {
                workers[thread].jobs.send(Box::new(inside)).unwrap();
                workers[thread].done.recv().unwrap()
            }
        }
    }

    /// Ends whatever a program that failed has left.
    pub(crate) fn clear(&mut self, thread_count: usize) {
        for thread in 0..thread_count {
            self.run(thread, Vec::new(), |guards| {
                guards.clear();
                Done::Nothing
            });
        }
    }
}
